"""The values of a job's tasks that its page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tunefarm_api.web.charts.sparkline import staircase
from tunefarm_api.web.jobs.job_view import Speedup, first_cost_sec
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.numbers import KernelNumbers, kernel_numbers, time_shares
from tunefarm_db.values import JobTask, ModelTask
from tunefarm_text import quantities
from tunefarm_text.algorithms import algorithm_title
from tunefarm_text.coverage_words import REASONS
from tunefarm_tuning.measure.roofline import Roofline

_UNKNOWN = KernelNumbers()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One kernel.

    Attributes:
        roofline: How near its best is to what its device can do; None where none works yet.
        share: Its part of the kernels' time: in the artifact, as that was timed, or else with the best that is known of each.
        covered: Whether the artifact runs it tuned; None where there is no artifact that says so.
        algorithm: The algorithm that replaces it in the artifact; empty if none does.
        why_not: Why it runs untuned.
    """

    task: JobTask
    shapes: str
    flops: float
    roofline: Roofline | None
    share: float | None
    speedup: Speedup | None
    spark: str
    covered: bool | None
    algorithm: str
    why_not: str


def task_lines(
    tasks: Iterable[JobTask],
    model_tasks: Iterable[ModelTask],
    report: Mapping[str, Any] | None = None,
    rooflines: Mapping[int, Roofline] = MappingProxyType({}),
) -> list[TaskLine]:
    """Return a line per task: what takes longest first, then those without a kernel that works. `rooflines` are by position."""
    tasks = list(tasks)
    evidence = Evidence(manifest={}, report=report or {})
    numbers = kernel_numbers(tasks, evidence)
    known = {(task.workload_key, task.toolchain): task for task in model_tasks}
    shares = time_shares(tasks, numbers, evidence.latency())
    lines = []
    for task in tasks:
        kernel = numbers[task.position]
        model_task = known.get((task.workload_key, task.toolchain))
        lines.append(
            TaskLine(
                task=task,
                shapes=shapes_text(model_task.args) if model_task else "",
                flops=model_task.flops if model_task else 0.0,
                roofline=rooflines.get(task.position),
                share=shares[task.position],
                speedup=task_speedup(task, kernel),
                spark=staircase(task.history),
                covered=kernel.covered,
                algorithm=algorithm_title(kernel.algorithm) if kernel.algorithm else "",
                why_not=_why(kernel),
            )
        )
    return sorted(lines, key=lambda line: (-(line.share or 0.0), line.task.position))


def task_speedup(task: JobTask, kernel: KernelNumbers = _UNKNOWN) -> Speedup | None:
    """Return how much faster the task's kernel got.

    An artifact's kernel is held against the untuned one only as both were timed side by side: a best time of the search is from
    another moment. What runs untuned got no faster.
    """
    if kernel.covered is False:
        return None
    if kernel.is_disturbed:
        return Speedup.unknown("untuned")
    if kernel.speedup is not None:
        return Speedup.of(kernel.speedup, "untuned")
    if kernel.covered and kernel.untuned and kernel.tuned and kernel.tuned.median_sec:
        return Speedup.of(kernel.untuned.median_sec / kernel.tuned.median_sec, "untuned")
    if not task.best_cost_sec:
        return None
    first = first_cost_sec(task)
    return Speedup.of(first / task.best_cost_sec, "first round") if first else None


def shapes_text(args: Iterable[dict[str, Any]]) -> str:
    """Return the kernel's arguments, its outputs last."""
    return ", ".join(quantities.shape(list(arg.get("shape", ())), str(arg.get("dtype", ""))) for arg in args)


def _why(kernel: KernelNumbers) -> str:
    reason = kernel.reason or ""
    return kernel.message or REASONS.get(reason, reason)
