"""What a run of `tune` found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunefarm_tuning.record import TuningRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """How one task fared.

    Attributes:
        trials: In this run; confirmations are none.
        confirmations: How often its best were measured again in this run.
        outcomes: How they ended: trials by `Outcome` value.
        best_cost_sec: Best known, records from before this run included; None where nothing works.
        spent_sec: Wall-clock of its rounds.
        exhausted: Nothing is left to try in its space.
        failed: Why it could not be tuned (further); None where it could.
    """

    name: str
    workload_key: str
    weight: int
    trials: int
    confirmations: int
    outcomes: Mapping[str, int]
    best_cost_sec: float | None
    spent_sec: float
    exhausted: bool
    failed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What a run found.

    Attributes:
        records: Of the trials of this run, in order, then those of the confirmations: `pick_best` weighs them.
        tasks: In the order given.
        stop_reason: The limit that was reached (``"trials"``, ``"wall_sec"``, ``"patience_trials"``,
            ``"min_gain_per_min"``), or ``"exhausted"`` (every space is spent, or its tuner proposed nothing in a whole
            round but what applies to configs tried before: see `run_round`), ``"interrupted"`` (Ctrl-C),
            ``"device-lost"``, ``"no-tasks"``.
        best_latency_sec: Sum over all tasks of calls × best cost; None unless each task has one.
    """

    records: tuple[TuningRecord, ...]
    tasks: tuple[TaskSummary, ...]
    stop_reason: str
    trials: int
    failures: int
    best_latency_sec: float | None
    wall_sec: float
