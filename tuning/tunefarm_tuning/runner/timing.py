"""What every runner tells its child about a measurement, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefarm_tuning.measure import Failure, MeasureInput, MeasureResult, Outcome, TimingOption


def measure_params(one: MeasureInput, timing: TimingOption) -> dict[str, Any]:
    """Return the parameters of ``measure`` and ``measure_here``."""
    return {
        "path": str(one.artifact_path),
        "args": [spec.to_json() for spec in one.task.workload.args],
        "kind": "cuda" if one.task.target.kind == "cuda" else "cpu",
        "repeat": timing.repeat,
        "number": timing.number,
        "min_repeat_ms": timing.min_repeat_ms,
    }


def result_of(reply: Mapping[str, Any], run_sec: float) -> MeasureResult:
    """Return the result that a child's answer tells."""
    failure = reply.get("failure")
    if failure is not None:
        return MeasureResult(run_sec=run_sec, failure=Failure(Outcome(failure[0]), str(failure[1])))
    return MeasureResult(run_sec=run_sec, samples_sec=tuple(float(s) for s in reply["samples_sec"]))


def failed(outcome: Outcome, message: str, run_sec: float = 0.0) -> MeasureResult:
    return MeasureResult(run_sec=run_sec, failure=Failure(outcome, message))
