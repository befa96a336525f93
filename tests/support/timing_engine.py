"""Measuring an artifact again, and timing networks during a search, with results that the test gives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from app_farm import Farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.jobs.measure_again import Measuring, measure_again, measuring_of
from tunefarm_app.jobs.network_timings import show_network
from tunefarm_db.unit_of_work import Repositories
from tunefarm_tuning.core.latency import Disturbance, Latency, TimedAgain

WITH_RUNTIME: Mapping[str, float] = {"untuned": 0.04, "onnxruntime": 0.03}


def timed(
    tuned_sec: float, *, slowdown: float | None = 1.0, others: Mapping[str, float] = WITH_RUNTIME
) -> TimedAgain:
    """Return a measurement beside `others`; nobody looked for other work on the device if `slowdown` is None."""
    disturbance = None if slowdown is None else Disturbance(blocks=9, slowdown=slowdown, others_cores=0.0)
    return TimedAgain(
        measured_at=time.time(),
        latency={
            name: Latency(samples_sec=(sec,) * 5, threads=2, disturbance=disturbance)
            for name, sec in {"tuned": tuned_sec, **others}.items()
        },
        no_baseline="" if "onnxruntime" in others else "the device is another machine, without ONNX Runtime",
    )


class TimingEngine(ReplayEngine):
    """Returns the given measurements one after another; raises those that are errors."""

    def __init__(self, *results: TimedAgain | Exception) -> None:
        super().__init__()
        self.results = list(results)

    def time_artifact(self, *_: Any, **__: Any) -> TimedAgain:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def measured(farm: Farm, job_id: str, *results: TimedAgain | Exception) -> Measuring:
    """Ask for a measurement per result, and have each run."""
    for result in results:
        assert measure_again(farm.services, job_id).state == "waiting"
        farm.with_engine(TimingEngine(result)).run()
    with farm.services.uow.read() as repos:
        return measuring_of(repos, job_id)


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
