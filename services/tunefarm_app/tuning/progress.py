"""What a round means for its task and its job: arithmetic without a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunefarm_app.tuning.task_grouping import Costed, grouped
from tunefarm_db.repositories.jobs.job_tasks import JobTaskChanges
from tunefarm_db.values import JobTask, Json
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.search.scheduler import RoundSummary, TaskState
from tunefarm_tuning.search.task_groups import for_scheduler, latency_sec
from tunefarm_tuning.search.trial_outcome import TrialOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A job's task, with what other tables know of it.

    Attributes:
        flops: Of one call.
        best_sec: Best cost on record for this target, device model and toolchain, from whatever job.
    """

    row: JobTask
    flops: float
    best_sec: float | None

    @property
    def position(self) -> int:
        return self.row.position

    @property
    def weight(self) -> int:
        return self.row.weight

    @property
    def workload_key(self) -> str:
        return self.row.workload_key

    @property
    def alternative(self) -> Json | None:
        return self.row.alternative

    @property
    def best_cost_sec(self) -> float | None:
        return self.best_sec


def scheduler_states(tasks: Sequence[TaskRow]) -> list[TaskState]:
    """Return the tasks of a job as the task scheduler sees them, in order."""
    return for_scheduler(
        [grouped(task, task.best_cost_sec) for task in tasks], [_state(task) for task in tasks]
    )


def _state(task: TaskRow) -> TaskState:
    return TaskState(
        weight=task.row.weight,
        flops=task.flops,
        history=tuple(
            RoundSummary(trials=int(trials), best_sec=best_sec) for trials, best_sec in task.row.history
        ),
        spent_sec=task.row.spent_sec,
        best_sec=task.best_sec,
        exhausted=task.row.exhausted,
    )


def as_of_now(tasks: Sequence[TaskRow], rows: Sequence[JobTask]) -> list[TaskRow]:
    """Return tasks that were read a while ago as their rows are now: other rounds of the job may have ended since."""
    return [
        replace(task, row=row, best_sec=task.best_sec if row.rounds == task.row.rounds else _least(task, row))
        for task, row in zip(tasks, rows, strict=True)
    ]


def _least(task: TaskRow, row: JobTask) -> float | None:
    return min((cost for cost in (task.best_sec, row.best_cost_sec) if cost is not None), default=None)


def after_round(
    task: TaskRow, outcomes: Sequence[TrialOutcome], *, spent_sec: float, exhausted: bool
) -> tuple[JobTaskChanges, bool]:
    """Return the task's new columns, and whether the round found a better kernel than was known."""
    trials = [outcome for outcome in outcomes if outcome.is_trial]
    costs = [outcome.cost_sec for outcome in trials if outcome.cost_sec is not None]
    improved = bool(costs) and (task.best_sec is None or min(costs) < task.best_sec)
    best_sec = min(costs) if improved else task.best_sec
    changes: JobTaskChanges = {
        "trials": task.row.trials + len(trials),
        "failures": task.row.failures + sum(outcome.outcome is not Outcome.OK for outcome in trials),
        "best_cost_sec": best_sec,
        "spent_sec": task.row.spent_sec + spent_sec,
        "rounds": task.row.rounds + 1,
        "history": [*task.row.history, [len(trials), best_sec]],
        "exhausted": exhausted,
    }
    return changes, improved


def best_latency_sec(tasks: Sequence[Costed]) -> float | None:
    """Return the sum of calls x best cost over a network's kernels, by their cheapest alternatives; None unless each has one."""
    return latency_sec([grouped(task, task.best_cost_sec) for task in tasks])
