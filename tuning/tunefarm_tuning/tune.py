"""`tune`: the whole search over a model's tasks, in one process and without any service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning.budget import Budget
from tunefarm_tuning.errors import DeviceLostError, InvalidInputError, TunefarmError
from tunefarm_tuning.events import RoundFinished, TaskEnded, TaskPicked, TuneEvent, TuneFinished
from tunefarm_tuning.measure import MeasureOption, Outcome
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.record_log import RecordLog
from tunefarm_tuning.round import TrialOutcome, run_round
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.task_progress import TaskProgress
from tunefarm_tuning.task_scheduler import TaskScheduler
from tunefarm_tuning.toolchain import toolchain_key
from tunefarm_tuning.tuner import DEFAULT_TUNER, check_tuner_name

_MAX_LOST_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """How one task fared.

    Attributes:
        trials: In this run.
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
    outcomes: Mapping[str, int]
    best_cost_sec: float | None
    spent_sec: float
    exhausted: bool
    failed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What a run found.

    Attributes:
        records: Of the trials of this run, in order.
        tasks: In the order given.
        stop_reason: The limit that was reached (``"trials"``, ``"wall_sec"``, ``"patience_trials"``), or ``"exhausted"``
            (every space is spent), ``"interrupted"`` (Ctrl-C), ``"device-lost"``, ``"no-tasks"``.
        best_latency_sec: Sum over all tasks of calls × best cost; None unless each task has one.
    """

    records: tuple[TuningRecord, ...]
    tasks: tuple[TaskSummary, ...]
    stop_reason: str
    trials: int
    failures: int
    best_latency_sec: float | None
    wall_sec: float


def tune(
    tasks: Sequence[TuningTask],
    *,
    budget: Budget,
    measure_option: MeasureOption | None = None,
    tuner: str = DEFAULT_TUNER,
    seed: int = 0,
    round_size: int = 8,
    records: Iterable[TuningRecord] = (),
    on_event: Callable[[TuneEvent], None] | None = None,
    log_path: Path | str | None = None,
) -> TuneResult:
    """Search for the fastest kernels of tasks until the budget is spent.

    Ctrl-C ends the run and returns what there is. A task that cannot be tuned does not end it.

    Args:
        tasks: What to tune, as `extract_tasks` returns them.
        budget: When to stop. Limits are looked at between rounds: the wall-clock may be overrun by one round.
        measure_option: Who builds and who measures; this machine if left out. Given ones are not closed.
        tuner: One of `tuner.TUNERS`.
        seed: Of all chance. Real measurements are noisy, so equal seeds do not give equal runs.
        round_size: Candidates built and measured at a time.
        records: Earlier records. Those of the same workload, space, target, device model and toolchain count as tried
            (so a run is resumed by what it logged); those of other devices teach the tuners that learn.
        on_event: Called in this thread with each `TuneEvent`.
        log_path: File to append each trial's record to, as JSON lines.

    Raises:
        InvalidInputError: If the tuner is unknown, the log cannot be written, or no task at all can be tuned.
        DeviceLostError: If nothing could be measured because the device is away.
    """
    check_tuner_name(tuner)
    if round_size < 1:
        raise InvalidInputError(f"round_size is {round_size}, but must be at least 1", code="bad-round-size")
    with ExitStack() as stack:
        log = stack.enter_context(RecordLog(log_path)) if log_path is not None else None
        option = measure_option or stack.enter_context(_this_machine())
        run = _Run(tasks, option, tuner, seed, list(records), on_event, log)
        stack.callback(run.close)
        return run.until_spent(budget, round_size)


@contextmanager
def _this_machine() -> Iterator[MeasureOption]:
    from tunefarm_tuning.builder.pool import LocalBuilder
    from tunefarm_tuning.runner.local import LocalRunner

    with LocalBuilder() as builder, LocalRunner() as runner:
        yield MeasureOption(builder=builder, runner=runner)


class _Run:
    """State of one `tune` call."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        option: MeasureOption,
        tuner: str,
        seed: int,
        earlier: Sequence[TuningRecord],
        on_event: Callable[[TuneEvent], None] | None,
        log: RecordLog | None,
    ) -> None:
        self._option = option
        self._on_event = on_event
        self._log = log
        self._toolchain = toolchain_key()
        self._began = time.monotonic()
        self._tasks = [
            TaskProgress(
                task,
                tuner=tuner,
                seed=seed,
                device=option.runner.device,
                toolchain=self._toolchain,
                earlier=earlier,
            )
            for task in tasks
        ]
        self._records: list[TuningRecord] = []
        self._trials_since_improvement = 0
        self._lost_rounds = 0
        self._first_error: Exception | None = None

    @property
    def _wall_sec(self) -> float:
        return time.monotonic() - self._began

    @property
    def _failures(self) -> int:
        return sum(record.outcome is not Outcome.OK for record in self._records)

    @property
    def _best_latency_sec(self) -> float | None:
        total = 0.0
        for one in self._tasks:
            if one.best_sec is None:
                return None
            total += one.task.weight * one.best_sec
        return total if self._tasks else None

    def until_spent(self, budget: Budget, round_size: int) -> TuneResult:
        scheduler = TaskScheduler()
        try:
            stop_reason = None if self._tasks else "no-tasks"
            while stop_reason is None:
                states = [one.state for one in self._tasks]
                picked = scheduler.next(states)
                if picked is None:
                    stop_reason = "exhausted"
                    break
                size = scheduler.round_size(
                    states, picked, round_size, budget, trials=len(self._records), wall_sec=self._wall_sec
                )
                self._round(picked, size)
                stop_reason = self._device_lost() or budget.exhausted_by(
                    trials=len(self._records),
                    wall_sec=self._wall_sec,
                    trials_since_improvement=self._trials_since_improvement,
                )
        except KeyboardInterrupt:
            stop_reason = "interrupted"
        if self._tasks and not self._records and all(one.failed for one in self._tasks):
            first = self._tasks[0]
            raise InvalidInputError(
                f"none of the {len(self._tasks)} tasks can be tuned; {first.task.workload.name}: {first.failed}",
                code="no-tunable-task",
            ) from self._first_error
        self._tell(
            TuneFinished(
                stop_reason=stop_reason,
                trials=len(self._records),
                failures=self._failures,
                best_latency_sec=self._best_latency_sec,
                wall_sec=self._wall_sec,
            )
        )
        return self._result(stop_reason)

    def _round(self, index: int, n: int) -> None:
        one = self._tasks[index]
        name = one.task.workload.name
        self._tell(TaskPicked(task=index, name=name, round=len(one.history), wall_sec=self._wall_sec))
        began = time.monotonic()
        try:
            outcomes = run_round(one.tuner(self._option.builder), one.task, n, self._option)
        except Exception as error:  # noqa: BLE001  one bad task must not cost the others hours of search
            reason = error.message if isinstance(error, TunefarmError) else f"{type(error).__name__}: {error}"
            self._first_error = self._first_error or error
            one.failed = reason
            self._tell(TaskEnded(task=index, name=name, reason=reason, wall_sec=self._wall_sec))
            return
        improved = one.add_round(outcomes, spent_sec=time.monotonic() - began)
        trials = [outcome for outcome in outcomes if outcome.is_trial]
        self._lost_rounds = self._lost_rounds + 1 if outcomes and not trials else 0
        self._trials_since_improvement = 0 if improved else self._trials_since_improvement + len(trials)
        self._keep(one, trials)
        self._tell(
            RoundFinished(
                task=index,
                name=name,
                outcomes=outcomes,
                trials=len(self._records),
                failures=self._failures,
                best_cost_sec=one.best_sec,
                best_latency_sec=self._best_latency_sec,
                tasks_with_kernel=sum(t.best_sec is not None for t in self._tasks),
                wall_sec=self._wall_sec,
            )
        )
        if one.exhausted:
            self._tell(TaskEnded(task=index, name=name, reason=None, wall_sec=self._wall_sec))

    def _keep(self, one: TaskProgress, trials: Sequence[TrialOutcome]) -> None:
        device = self._option.runner.device
        records = [
            trial.to_record(one.task, device, tuner=one.tuner_name, toolchain=self._toolchain)
            for trial in trials
        ]
        self._records += records
        if self._log is not None:
            self._log.append(records)

    def _device_lost(self) -> str | None:
        if self._lost_rounds < _MAX_LOST_ROUNDS:
            return None
        if not self._records:
            raise DeviceLostError(f"the device {self._option.runner.device.name} does not measure anything")
        return "device-lost"

    def _tell(self, event: TuneEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _result(self, stop_reason: str) -> TuneResult:
        outcomes: dict[str, Counter[str]] = {}
        for record in self._records:
            outcomes.setdefault(record.workload_key, Counter())[record.outcome.value] += 1
        return TuneResult(
            records=tuple(self._records),
            tasks=tuple(
                TaskSummary(
                    name=one.task.workload.name,
                    workload_key=one.task.workload.key,
                    weight=one.task.weight,
                    trials=one.trials,
                    outcomes=dict(outcomes.get(one.task.workload.key, Counter())),
                    best_cost_sec=one.best_sec,
                    spent_sec=one.spent_sec,
                    exhausted=one.exhausted,
                    failed=one.failed,
                )
                for one in self._tasks
            ),
            stop_reason=stop_reason,
            trials=len(self._records),
            failures=self._failures,
            best_latency_sec=self._best_latency_sec,
            wall_sec=self._wall_sec,
        )

    def close(self) -> None:
        for one in self._tasks:
            one.close()
