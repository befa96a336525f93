"""Events of a run of `tune`. All times are wall-clock seconds since it began."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.search.trial_outcome import TrialOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPicked:
    """A task gets the next round.

    Attributes:
        task: Position in the tasks that `tune` was given.
        round: Rounds of this task before.
    """

    task: int
    name: str
    round: int
    wall_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """A round is over.

    Attributes:
        outcomes: Its trials; infrastructure errors are among them and are not counted.
        trials: Over all tasks so far.
        failures: Trials of them that failed.
        best_cost_sec: The task's best cost; None while none of its kernels works.
        best_latency_sec: Sum over all tasks of calls × best cost; None until each task has one.
        tasks_with_kernel: Number of tasks with a working kernel.
    """

    task: int
    name: str
    outcomes: tuple[TrialOutcome, ...]
    trials: int
    failures: int
    best_cost_sec: float | None
    best_latency_sec: float | None
    tasks_with_kernel: int
    wall_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BestConfirmed:
    """The few best configs of a task were confirmed in turn, before the winner is named.

    Attributes:
        outcomes: One per config; they are recorded, and are no trials of the budget.
        best_cost_sec: The task's best cost after the confirmation; it may be higher than before.
        best_latency_sec: Likewise of the model.
        failed: Why they could not be confirmed; None if they were.
    """

    task: int
    name: str
    outcomes: tuple[TrialOutcome, ...]
    best_cost_sec: float | None
    best_latency_sec: float | None
    failed: str | None
    wall_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task gets no more rounds in this run.

    Attributes:
        reason: None if its space is spent, else what went wrong.
    """

    task: int
    name: str
    reason: str | None
    wall_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFinished:
    """The run is over; `TuneResult` says more."""

    stop_reason: str
    trials: int
    failures: int
    best_latency_sec: float | None
    wall_sec: float


TuneEvent = TaskPicked | RoundFinished | BestConfirmed | TaskEnded | TuneFinished
