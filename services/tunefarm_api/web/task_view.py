"""A job's kernels as its page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tunefarm_api.web import show
from tunefarm_api.web.job_view import Speedup, first_cost_sec
from tunefarm_api.web.sparkline import staircase
from tunefarm_app.job_report.words import REASONS
from tunefarm_db.values import JobTask, ModelTask
from tunefarm_tuning.roofline import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One kernel.

    Attributes:
        roofline: How near its best is to what its device can do; None where none works yet.
        share: Its part of the network's time, with the best that is known of each.
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
    """Return a line per task: what takes longest first, then those without a kernel that works.

    Args:
        tasks: The job's.
        model_tasks: What the model says of them.
        report: The artifact's, where there is one.
        rooflines: By position: how near each one's best is to what its device can do.
    """
    coverage = (report or {}).get("coverage") or {}
    tuned = {hit["workload_key"] for hit in coverage.get("hits") or ()}
    missed = {miss["workload_key"]: _why(miss) for miss in coverage.get("misses") or ()}
    tasks = list(tasks)
    known = {(one.workload_key, one.toolchain): one for one in model_tasks}
    total_sec = sum(task.weight * (task.best_cost_sec or 0.0) for task in tasks)
    lines = []
    for task in tasks:
        key = task.workload_key
        covered = True if key in tuned else False if key in missed else None
        model_task = known.get((key, task.toolchain))
        roofline = rooflines.get(task.position)
        lines.append(_line(task, model_task, roofline, total_sec, covered, missed.get(key, "")))
    return sorted(lines, key=lambda line: (-(line.share or 0.0), line.task.position))


def task_speedup(task: JobTask) -> Speedup | None:
    """Return how much faster the task's kernel got."""
    if not task.best_cost_sec:
        return None
    if task.untuned_cost_sec:
        return Speedup(ratio=task.untuned_cost_sec / task.best_cost_sec, than="untuned")
    first = first_cost_sec(task)
    return Speedup(ratio=first / task.best_cost_sec, than="first round") if first else None


def shapes_text(args: Iterable[dict[str, Any]]) -> str:
    """Return the kernel's arguments, its outputs last."""
    return ", ".join(show.shape(list(arg.get("shape", ())), str(arg.get("dtype", ""))) for arg in args)


def _why(miss: Mapping[str, Any]) -> str:
    reason = str(miss.get("reason", ""))
    return str(miss.get("message") or REASONS.get(reason, reason))


def _line(
    task: JobTask,
    model_task: ModelTask | None,
    roofline: Roofline | None,
    total_sec: float,
    covered: bool | None,
    why_not: str,
) -> TaskLine:
    cost_sec = task.best_cost_sec
    return TaskLine(
        task=task,
        shapes=shapes_text(model_task.args) if model_task else "",
        flops=model_task.flops if model_task else 0.0,
        roofline=roofline,
        share=task.weight * cost_sec / total_sec if cost_sec and total_sec else None,
        speedup=task_speedup(task),
        spark=staircase(task.history),
        covered=covered,
        why_not=why_not,
    )
