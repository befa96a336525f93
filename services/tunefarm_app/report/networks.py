"""How fast the whole network was during a job's search, and why that is not known yet: for pages, API, command and report."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_app.report.parts import ReportNetwork
from tunefarm_app.settings import Settings
from tunefarm_app.storage.rows import searches
from tunefarm_db.values import Job, NetworkTiming
from tunefarm_text.quantities import duration, tuned_kernels

_CPU = "llvm"
_ESTIMATE = "Until then the latency is an estimate: the sum of the kernels' best times."


def networks_of(rows: Sequence[NetworkTiming]) -> list[ReportNetwork]:
    """Return the networks that were timed in a search, oldest first."""
    return [ReportNetwork.model_validate(row) for row in rows if row.latency_sec is not None]


def fastest_network(networks: Sequence[ReportNetwork]) -> ReportNetwork | None:
    """Return the network whose latency a job shows until it has an artifact; None if none was timed."""
    return min(networks, key=lambda network: network.latency_sec, default=None)


def network_words(network: ReportNetwork) -> str:
    """Return when and how far tuned a network was timed: ``"measured after 1 min 02 s of search, 3 of 20 kernels tuned"``."""
    disturbed = ", disturbed by other work" if network.quiet is False else ""
    tuned = tuned_kernels(network.covered, network.tasks)
    return f"measured after {duration(network.tuned_sec)} of search, {tuned}{disturbed}"


def why_not_timed(job: Job, rows: Sequence[NetworkTiming], settings: Settings) -> str:
    """Return why a search has not timed its network, and what its latency is meanwhile; an empty text once it has, or has ended."""
    if not searches(job) or job.state.is_finished or any(row.latency_sec is not None for row in rows):
        return ""
    at_the_end = "The network itself is timed when the job compiles"
    if job.target.get("kind") != _CPU:
        return f"{at_the_end}, as on all GPUs. {_ESTIMATE}"
    if not settings.max_drafts_bytes or not settings.network_timing_share:
        return f"{at_the_end}: this farm's settings leave out timings before. {_ESTIMATE}"
    error = rows[-1].error if rows else None
    if error is not None:
        return f"{at_the_end}: {error.get('message', '')}. {_ESTIMATE}"
    after_sec, wall_sec = settings.network_timing_after_sec, job.budget.get("wall_sec")
    if wall_sec is not None and wall_sec <= after_sec:
        return f"{at_the_end}: the search is too short for it. {_ESTIMATE}"
    return (
        f"The network itself is timed after {duration(after_sec)} of search, as soon as it is compiled and the timing takes no more "
        f"than {settings.network_timing_share:.0%} of the search. {_ESTIMATE}"
    )
