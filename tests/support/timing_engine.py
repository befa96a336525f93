"""Measuring an artifact again, with results that the test gives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from app_farm import Farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.report.measuring import Measuring, measure_again, measuring_of
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
