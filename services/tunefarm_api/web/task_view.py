"""A job's kernels as its page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tunefarm_api.web import show
from tunefarm_api.web.job_view import Speedup, first_cost_sec
from tunefarm_api.web.sparkline import staircase
from tunefarm_db.values import JobTask, ModelTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One kernel: `share` is its part of the network's time, with the best that is known of each."""

    task: JobTask
    shapes: str
    flops: float
    share: float | None
    speedup: Speedup | None
    spark: str


def task_lines(tasks: Iterable[JobTask], model_tasks: Iterable[ModelTask]) -> list[TaskLine]:
    """Return a line per task: what takes longest first, then those without a kernel that works."""
    tasks = list(tasks)
    known = {(one.workload_key, one.toolchain): one for one in model_tasks}
    total_sec = sum(task.weight * (task.best_cost_sec or 0.0) for task in tasks)
    lines = [_line(task, known.get((task.workload_key, task.toolchain)), total_sec) for task in tasks]
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


def _line(task: JobTask, model_task: ModelTask | None, total_sec: float) -> TaskLine:
    cost_sec = task.best_cost_sec
    return TaskLine(
        task=task,
        shapes=shapes_text(model_task.args) if model_task else "",
        flops=model_task.flops if model_task else 0.0,
        share=task.weight * cost_sec / total_sec if cost_sec and total_sec else None,
        speedup=task_speedup(task),
        spark=staircase(task.history),
    )
