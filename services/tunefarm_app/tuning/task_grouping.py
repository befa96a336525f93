"""A job's tasks as the engine groups them: those of a kernel and of its alternatives."""

from __future__ import annotations

from typing import Protocol

from tunefarm_db.values import Json
from tunefarm_tuning.search.task_groups import GroupedTask
from tunefarm_tuning.workload.task import Alternative


class Costed(Protocol):
    """A task with the best cost that is known of it."""

    @property
    def workload_key(self) -> str: ...

    @property
    def alternative(self) -> Json | None: ...

    @property
    def weight(self) -> int: ...

    @property
    def best_cost_sec(self) -> float | None: ...


def grouped(task: Costed, best_sec: float | None) -> GroupedTask:
    """Return a task with what it may stand for, as of a best cost."""
    alternative = task.alternative
    return GroupedTask(
        workload_key=task.workload_key,
        weight=task.weight,
        best_sec=best_sec,
        alternative=None if alternative is None else Alternative.from_json(alternative),
    )
