"""Groups of tasks: of a kernel and its alternatives, only the cheapest counts in a model's latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunefarm_tuning.search.scheduler import TaskState
from tunefarm_tuning.workload.task import Alternative

_HOPELESS_RATIO = 1.25
"""A task gets more rounds while it costs at most this many times the cheapest of its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTask:
    """A task with its best cost.

    Attributes:
        best_sec: Best cost of the task's kernel; None while there is none.
        alternative: The kernels that it may replace; None for a kernel of the model itself.
    """

    workload_key: str
    weight: int
    best_sec: float | None
    alternative: Alternative | None = None

    @property
    def replacing_sec(self) -> float | None:
        """Cost of all kernels that replace the original kernel; an alternative's other kernels are estimated."""
        if self.best_sec is None or self.alternative is None:
            return self.best_sec
        return self.best_sec * (1.0 + self.alternative.overhead)


def latency_sec(tasks: Sequence[GroupedTask]) -> float | None:
    """Return the sum of calls x best cost over a model's kernels, by the cheapest alternative; None unless each has a cost."""
    alternatives = _cheapest([task for task in tasks if task.alternative is not None])
    total = 0.0
    for task in tasks:
        if task.alternative is not None:
            continue
        costs_sec = [sec for sec in (task.best_sec, alternatives.get(task.workload_key)) if sec is not None]
        if not costs_sec:
            return None
        total += task.weight * min(costs_sec)
    return total if tasks else None


def counting(tasks: Sequence[GroupedTask]) -> list[bool]:
    """Return, in order, whether tasks count in the latency: the cheapest of a kernel and its alternatives does."""
    cheapest = _cheapest(tasks)
    return [
        task.alternative is None
        if task.replacing_sec is None
        else any(task.replacing_sec <= cheapest[key] for key in _stands_for(task))
        for task in tasks
    ]


def for_scheduler(tasks: Sequence[GroupedTask], states: Sequence[TaskState]) -> list[TaskState]:
    """Return states, in order, with hopeless ones set aside: a task of the same group is far cheaper.

    Each task of a group gets a first round before one is set aside.
    """
    cheapest = _cheapest(tasks)
    return [
        replace(state, weight=0, exhausted=True) if _is_hopeless(task, state, cheapest) else state
        for task, state in zip(tasks, states, strict=True)
    ]


def _cheapest(tasks: Sequence[GroupedTask]) -> dict[str, float]:
    """Return the least cost of each kernel of the model, by workload key, alternatives included."""
    least: dict[str, float] = {}
    for task in tasks:
        for key in _stands_for(task):
            if task.replacing_sec is not None:
                least[key] = min(least.get(key, task.replacing_sec), task.replacing_sec)
    return least


def _is_hopeless(task: GroupedTask, state: TaskState, cheapest: dict[str, float]) -> bool:
    if task.replacing_sec is None or not state.history:
        return False
    return all(task.replacing_sec > _HOPELESS_RATIO * cheapest[key] for key in _stands_for(task))


def _stands_for(task: GroupedTask) -> tuple[str, ...]:
    return (task.workload_key,) if task.alternative is None else task.alternative.instead_of
