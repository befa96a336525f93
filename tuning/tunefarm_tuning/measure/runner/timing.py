"""A measurement's parameters for a runner's child, and the result read from the child's reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import (
    Failure,
    MeasureInput,
    MeasureResult,
    SessionOrigin,
    TimingOption,
    told_facts,
)

_MOST_SAMPLES = 10_000


def measure_each(
    inputs: Sequence[MeasureInput],
    measure: Callable[[MeasureInput, float | None], MeasureResult],
    *,
    until_lost: bool = True,
) -> list[MeasureResult]:
    """Measure candidates one after the other.

    Args:
        inputs: The candidates.
        measure: Takes a candidate and the cost that it has to beat in seconds per call: the best of that given and those seen in
            the batch; None if neither.
        until_lost: Whether the candidates after an infrastructure error get the same error.
    """
    best: dict[tuple[str, str], float] = {}
    results: list[MeasureResult] = []
    lost: Failure | None = None
    for candidate in inputs:
        if lost is not None:
            results.append(MeasureResult(run_sec=0.0, failure=lost))
            continue
        key = _task_key(candidate)
        rivals = [cost_sec for cost_sec in (candidate.rival_sec, best.get(key)) if cost_sec is not None]
        result = measure(candidate, min(rivals, default=None))
        results.append(result)
        if result.cost_sec is not None and not result.truncated:
            best[key] = min(result.cost_sec, best.get(key, result.cost_sec))
        if until_lost and result.failure and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
            lost = result.failure
    return results


def folders_of(inputs: Sequence[MeasureInput]) -> list[Path]:
    """Return the folders of the kernels, which a child has to read."""
    return list(dict.fromkeys(candidate.artifact_path.absolute().parent for candidate in inputs))


def _task_key(candidate: MeasureInput) -> tuple[str, str]:
    return candidate.task.workload.key, candidate.task.target.key


def check_one_task(inputs: Sequence[MeasureInput]) -> None:
    """Raise a `ValueError` if the inputs are of several tasks: such kernels cannot be timed in turn."""
    if len({_task_key(candidate) for candidate in inputs}) > 1:
        raise ValueError("kernels of different tasks cannot be timed in turn: they take different arguments")


def measure_params(
    candidate: MeasureInput, timing: TimingOption, rival_sec: float | None, clock_mhz: float | None = None
) -> dict[str, Any]:
    """Return the parameters of ``measure`` and ``measure_here``; `clock_mhz` is the device's clock at its calibration."""
    return {
        "path": str(candidate.artifact_path),
        "rival_sec": rival_sec,
        **_common_params(candidate, timing, clock_mhz),
    }


def interleaved_params(
    inputs: Sequence[MeasureInput], timing: TimingOption, rounds: int, clock_mhz: float | None = None
) -> dict[str, Any]:
    """Return the parameters of ``measure_interleaved`` and ``measure_interleaved_here``; there is at least one input.

    Raises:
        ValueError: If the inputs are of different workloads or targets.
    """
    check_one_task(inputs)
    paths = [str(candidate.artifact_path) for candidate in inputs]
    return {"paths": paths, "rounds": rounds, **_common_params(inputs[0], timing, clock_mhz)}


def _common_params(candidate: MeasureInput, timing: TimingOption, clock_mhz: float | None) -> dict[str, Any]:
    return {
        "args": [spec.to_json() for spec in candidate.task.workload.args],
        "kind": "cuda" if candidate.task.target.kind == "cuda" else "cpu",
        "repeat": timing.repeat,
        "number": timing.number,
        "min_repeat_ms": timing.min_repeat_ms,
        "max_timing_ms": timing.max_timing_ms,
        "clock_mhz": clock_mhz,
        "retake_sec": timing.timeout_sec / 2,
    }


def result_of(reply: Mapping[str, Any], run_sec: float) -> MeasureResult:
    """Return the result in a child's reply."""
    failure = reply.get("failure")
    if failure is not None:
        if reply.get("not_at_work", False):
            run_sec = 0.0
        return MeasureResult(run_sec=run_sec, failure=Failure.from_json(failure))
    return MeasureResult(
        run_sec=run_sec,
        samples_sec=tuple(float(s) for s in reply["samples_sec"][:_MOST_SAMPLES]),
        truncated=bool(reply["truncated"]),
        facts=told_facts(reply.get("facts", {})),
    )


def interleaved_results(
    reply: Mapping[str, Any], run_sec: float, origin: SessionOrigin | None = None
) -> list[MeasureResult] | None:
    """Return the results in a child's reply, measured in the session of that origin; None if one of the kernels failed."""
    if "failure" in reply:
        return None
    candidate_sec = run_sec / max(len(reply["samples_sec"]), 1)
    return [
        MeasureResult(
            run_sec=candidate_sec,
            samples_sec=tuple(float(s) for s in samples[:_MOST_SAMPLES]),
            facts=told_facts(reply.get("facts", {})),
            origin=origin,
        )
        for samples in reply["samples_sec"]
    ]


def failed(outcome: Outcome, message: str, run_sec: float = 0.0) -> MeasureResult:
    """Return the result of a measurement that failed after `run_sec` seconds."""
    return MeasureResult(run_sec=run_sec, failure=Failure(outcome, message))
