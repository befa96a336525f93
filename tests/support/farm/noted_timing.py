"""A network that a search has compiled and timed, as its steps store it."""

from __future__ import annotations

from tunefarm_app.jobs.network_timings import show_network
from tunefarm_db.unit_of_work import Repositories


def note_timing(
    repos: Repositories, job_id: str, number: int, *, tuned_sec: float, covered: int, latency_sec: float
) -> None:
    """Store a timing with an interval of 10 % on either side, and tell the job."""
    repos.network_timings.add(
        job_id,
        number,
        sha256="0" * 64,
        inputs_sha256="0" * 64,
        size_bytes=100,
        name="net.tunefarm",
        tasks=2,
        covered=covered,
        began_sec=0.0,
        costs={},
        expected_sec=1.0,
        error=None,
    )
    measured = {
        "latency_sec": latency_sec,
        "low_sec": 0.9 * latency_sec,
        "high_sec": 1.1 * latency_sec,
        "quiet": True,
        "device": "dev-1",
        "tuned_sec": tuned_sec,
    }
    repos.network_timings.note(job_id, number, **measured, device_id="dev_1", spent_sec=1.0)  # type: ignore[arg-type]
    job = repos.jobs.get(job_id)
    show_network(repos, job, repos.network_timings.of(job_id))
    facts = {"number": number, "tasks": 2, "covered": covered, "trials": 8 * (number + 1)}
    repos.events.add(job_id, "network-timed", {**measured, **facts})
