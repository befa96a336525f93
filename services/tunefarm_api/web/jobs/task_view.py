"""The values of a job's tasks that its page shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tunefarm_api.web.charts.sparkline import staircase
from tunefarm_api.web.jobs.job_view import Speedup, first_cost_sec
from tunefarm_app.report.evidence import Evidence, Timings
from tunefarm_app.report.words import REASONS
from tunefarm_app.storage.rows import grouped
from tunefarm_db.values import JobTask, ModelTask
from tunefarm_text import quantities
from tunefarm_tuning.measure.roofline import Roofline
from tunefarm_tuning.search.task_groups import counting

_NO_TIMINGS: Timings = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One kernel.

    Attributes:
        roofline: How near its best is to what its device can do; None where none works yet.
        share: Its part of the kernels' time: in the artifact, as that was timed, or else with the best that is known of each.
        covered: Whether the artifact runs it tuned; None where there is no artifact that says so.
        why_not: Why it does not.
    """

    task: JobTask
    shapes: str
    flops: float
    roofline: Roofline | None
    share: float | None
    speedup: Speedup | None
    spark: str
    covered: bool | None
    why_not: str


def task_lines(
    tasks: Iterable[JobTask],
    model_tasks: Iterable[ModelTask],
    report: Mapping[str, Any] | None = None,
    rooflines: Mapping[int, Roofline] = MappingProxyType({}),
) -> list[TaskLine]:
    """Return a line per task: what takes longest first, then those without a kernel that works. `rooflines` are by position."""
    coverage = (report or {}).get("coverage") or {}
    tuned = {hit["workload_key"] for hit in coverage.get("hits") or ()}
    missed = {miss["workload_key"]: _why(miss) for miss in coverage.get("misses") or ()}
    timings = Evidence(manifest={}, report=report or {}).kernels()
    tasks = list(tasks)
    known = {(task.workload_key, task.toolchain): task for task in model_tasks}
    covers = {task.workload_key: _covered(task.workload_key, tuned, missed) for task in tasks}
    calls_sec = [_call_sec(task, covers[task.workload_key], timings) for task in tasks]
    counts = counting([grouped(task, task.best_cost_sec) for task in tasks])
    calls_sec = [sec if counted else None for sec, counted in zip(calls_sec, counts, strict=True)]
    total_sec = sum(task.weight * (sec or 0.0) for task, sec in zip(tasks, calls_sec, strict=True))
    lines = []
    for task, call_sec in zip(tasks, calls_sec, strict=True):
        key = task.workload_key
        model_task = known.get((key, task.toolchain))
        lines.append(
            TaskLine(
                task=task,
                shapes=shapes_text(model_task.args) if model_task else "",
                flops=model_task.flops if model_task else 0.0,
                roofline=rooflines.get(task.position),
                share=task.weight * call_sec / total_sec if call_sec and total_sec else None,
                speedup=task_speedup(task, covers[key], timings.get(key, _NO_TIMINGS)),
                spark=staircase(task.history),
                covered=covers[key],
                why_not=missed.get(key, ""),
            )
        )
    return sorted(lines, key=lambda line: (-(line.share or 0.0), line.task.position))


def task_speedup(
    task: JobTask, covered: bool | None = None, timings: Timings = _NO_TIMINGS
) -> Speedup | None:
    """Return how much faster the task's kernel got.

    An artifact's kernel is held against the untuned one only as both were timed side by side: a best time of the search is from
    another moment. What runs untuned got no faster.

    Args:
        task: The task.
        covered: Whether the artifact runs it tuned; None without an artifact.
        timings: Its untuned and tuned kernel, when the artifact was made.
    """
    untuned, tuned = timings
    if covered is False:
        return None
    if covered and untuned and tuned and tuned.median_sec:
        return Speedup(ratio=untuned.median_sec / tuned.median_sec, than="untuned")
    if not task.best_cost_sec:
        return None
    first = first_cost_sec(task)
    return Speedup(ratio=first / task.best_cost_sec, than="first round") if first else None


def shapes_text(args: Iterable[dict[str, Any]]) -> str:
    """Return the kernel's arguments, its outputs last."""
    return ", ".join(quantities.shape(list(arg.get("shape", ())), str(arg.get("dtype", ""))) for arg in args)


def _why(miss: Mapping[str, Any]) -> str:
    reason = str(miss.get("reason", ""))
    return str(miss.get("message") or REASONS.get(reason, reason))


def _covered(key: str, tuned: Collection[str], missed: Collection[str]) -> bool | None:
    return True if key in tuned else False if key in missed else None


def _call_sec(task: JobTask, covered: bool | None, timings: Mapping[str, Timings]) -> float | None:
    """Return how long a call of the task's kernel takes, in the artifact if there is one."""
    untuned, tuned = timings.get(task.workload_key, _NO_TIMINGS)
    now = None if covered is None else tuned if covered else untuned
    return task.best_cost_sec if now is None else now.median_sec
