"""The result of a run of `tune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.measure.roofline import Roofline, roofline
from tunefarm_tuning.records.record import TuningRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """The result of one task.

    Attributes:
        trials: In this run; confirmations are none.
        confirmations: Number of confirmations of its best configs in this run.
        outcomes: Number of trials by `Outcome` value.
        best_cost_sec: Best known, records from before this run included; None if nothing works.
        spent_sec: Wall-clock of its rounds.
        exhausted: Nothing is left to try in its space.
        failed: Why it could not be tuned (further); None if it could.
        flops: Floating-point operations of one call.
        dtype: The data type that it computes in; None if that is mixed or not known.
        moved_bytes: Bytes that a call has to move at least; None if that is not known.
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
    flops: float = 0.0
    dtype: str | None = None
    moved_bytes: int | None = None

    def roofline(self, peak: Peak | None = None, *, threads: int = 1) -> Roofline | None:
        """Return the share of the device's peak that its best config reaches; None without a working config or known peak.

        Args:
            peak: As `measure_peak` returns it for the device that the task was tuned on; without it, only the rate is
                told.
            threads: Threads that its kernels were measured on.
        """
        return roofline(
            self.flops,
            self.best_cost_sec,
            peak=peak,
            threads=threads,
            dtype=self.dtype,
            moved_bytes=self.moved_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The result of a run.

    Attributes:
        records: Records of the trials in order, then those of the confirmations; `pick_best` chooses among them.
        tasks: The tasks in the given order.
        stop_reason: The limit that was reached (``"trials"``, ``"wall_sec"``, ``"patience_trials"``,
            ``"min_gain_per_min"``), or ``"exhausted"`` (every space is exhausted, or its tuner proposed only tried
            configs in a whole round: see `run_round`), ``"interrupted"`` (Ctrl-C), ``"device-lost"``, ``"no-tasks"``.
        best_latency_sec: Sum over all tasks of calls × best cost; None unless each task has one.
    """

    records: tuple[TuningRecord, ...]
    tasks: tuple[TaskSummary, ...]
    stop_reason: str
    trials: int
    failures: int
    best_latency_sec: float | None
    wall_sec: float
