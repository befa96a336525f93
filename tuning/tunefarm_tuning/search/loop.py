"""One run of `tune`: rounds until the budget is spent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from tunefarm_tuning.core.errors import DeviceLostError, InvalidInputError, reason_of
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.roofline import kernel_bytes, kernel_dtype
from tunefarm_tuning.records.log import RecordLog
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.confirm import confirm_best
from tunefarm_tuning.search.contenders import without_confirming
from tunefarm_tuning.search.events import (
    BestConfirmed,
    RoundFinished,
    TaskEnded,
    TaskPicked,
    TuneEvent,
    TuneFinished,
)
from tunefarm_tuning.search.progress import TaskProgress, scheduler_states
from tunefarm_tuning.search.result import TaskSummary, TuneResult
from tunefarm_tuning.search.round_queue import NextRound, RoundQueue, Spent
from tunefarm_tuning.search.scheduler import TaskScheduler
from tunefarm_tuning.search.task_groups import latency_sec
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.task import TuningTask

_MAX_LOST_ROUNDS = 3


class TuneRun:
    """State of one `tune` call."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        option: MeasureOption,
        *,
        tuner: str,
        seed: int,
        earlier: Sequence[TuningRecord] = (),
        histories: Sequence[TaskHistory] = (),
        confirm: bool = True,
        on_event: Callable[[TuneEvent], None] | None = None,
        log: RecordLog | None = None,
    ) -> None:
        self._option = option
        self._on_event = on_event
        self._log = log
        self._confirms = confirm
        self._toolchain = toolchain_key()
        self._histories = histories
        earlier = [*earlier, *(record for history in histories for record in history.records)]
        self._began = self._round_ended = time.monotonic()
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
        self._trials = 0
        self._failures = 0
        self._trials_since_improvement = 0
        self._lost_rounds = 0
        self._lost_because = ""
        self._first_error: Exception | None = None

    @property
    def _wall_sec(self) -> float:
        return time.monotonic() - self._began

    @property
    def _best_latency_sec(self) -> float | None:
        return latency_sec([one.grouped for one in self._tasks])

    def until_spent(self, budget: Budget, round_size: int) -> TuneResult:
        queue = RoundQueue(self._tasks, self._option, round_size=round_size, histories=self._histories)
        try:
            with closing(queue):
                stop_reason = self._search(queue, budget)
            if self._confirms and stop_reason != "device-lost":
                self._confirm_winners(budget)
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
                trials=self._trials,
                failures=self._failures,
                best_latency_sec=self._best_latency_sec,
                wall_sec=self._wall_sec,
            )
        )
        return self._result(stop_reason)

    def _search(self, queue: RoundQueue, budget: Budget) -> str:
        """Measure rounds; return why there are no more."""
        if not self._tasks:
            return "no-tasks"
        scheduler = TaskScheduler()
        self._round_ended = time.monotonic()
        while True:
            search = self._search_budget(budget)
            found = queue.next(Spent(budget=search, trials=self._trials, wall_sec=self._wall_sec))
            if found is None:
                return "exhausted"
            self._round(found)
            stop_reason = self._device_lost() or search.exhausted_by(
                trials=self._trials,
                wall_sec=self._wall_sec,
                trials_since_improvement=self._trials_since_improvement,
                gain_per_min=scheduler.gain_per_min(scheduler_states(self._tasks)),
            )
            if stop_reason is not None:
                return stop_reason

    def _round(self, found: NextRound) -> None:
        index = found.task
        one = self._tasks[index]
        name = one.task.workload.name
        self._tell(TaskPicked(task=index, name=name, round=len(one.history), wall_sec=self._wall_sec))
        try:
            outcomes = found.prepared.measure(one.best_sec, at_most=found.size)
        except Exception as error:  # noqa: BLE001  one bad task must not cost the others hours of search
            reason = reason_of(error)
            self._first_error = self._first_error or error
            one.failed = reason
            self._tell(TaskEnded(task=index, name=name, reason=reason, wall_sec=self._wall_sec))
            return
        one.saved_share = found.prepared.saved_share
        # Rounds overlap: what each takes is the time since the one before it.
        ended = time.monotonic()
        spent_sec, self._round_ended = ended - self._round_ended, ended
        trials = [outcome for outcome in outcomes if outcome.is_trial]
        records = self._keep(one, trials)
        improved = one.add_round(records, spent_sec=spent_sec, spent=not outcomes and not found.blind)
        self._trials += len(trials)
        self._failures += sum(trial.outcome is not Outcome.OK for trial in trials)
        self._lost_rounds = self._lost_rounds + 1 if outcomes and not trials else 0
        self._lost_because = outcomes[0].message if self._lost_rounds else ""
        self._trials_since_improvement = 0 if improved else self._trials_since_improvement + len(trials)
        self._tell(
            RoundFinished(
                task=index,
                name=name,
                outcomes=outcomes,
                trials=self._trials,
                failures=self._failures,
                best_cost_sec=one.best_sec,
                best_latency_sec=self._best_latency_sec,
                tasks_with_kernel=sum(t.best_sec is not None for t in self._tasks),
                wall_sec=self._wall_sec,
            )
        )
        if one.exhausted:
            self._tell(TaskEnded(task=index, name=name, reason=None, wall_sec=self._wall_sec))

    def _search_budget(self, budget: Budget) -> Budget:
        """Return the budget without the time that confirming the winners will take."""
        if budget.wall_sec is None or not self._confirms:
            return budget
        return without_confirming(budget, sum(one.confirming_sec(len(one.contenders)) for one in self._tasks))

    def _confirm_winners(self, budget: Budget) -> None:
        """Measure again, of the tasks whose winner is in doubt, the few best; those that matter most come first."""
        share = {i: one.task.weight * (one.best_sec or 0.0) for i, one in enumerate(self._tasks)}
        for index in sorted(share, key=lambda i: (-share[i], i)):
            while configs := self._tasks[index].contenders:
                expected_sec = self._tasks[index].confirming_sec(len(configs))
                if budget.wall_sec is not None and self._wall_sec + expected_sec > budget.wall_sec:
                    break
                self._confirm(index, configs)

    def _confirm(self, index: int, configs: Sequence[Config]) -> None:
        one = self._tasks[index]
        assert one.space is not None
        failed: str | None = None
        outcomes: tuple[TrialOutcome, ...] = ()
        try:
            outcomes = confirm_best(one.task, configs, self._option, space_key=one.space.key)
        except Exception as error:  # noqa: BLE001  what was found must not be lost to a check of it
            failed = reason_of(error)
        one.add_confirmation(self._keep(one, [outcome for outcome in outcomes if outcome.is_trial]))
        self._tell(
            BestConfirmed(
                task=index,
                name=one.task.workload.name,
                outcomes=outcomes,
                best_cost_sec=one.best_sec,
                best_latency_sec=self._best_latency_sec,
                failed=failed,
                wall_sec=self._wall_sec,
            )
        )

    def _keep(self, one: TaskProgress, trials: Sequence[TrialOutcome]) -> list[TuningRecord]:
        device = self._option.runner.device
        records = [
            trial.to_record(one.task, device, tuner=one.tuner_name, toolchain=self._toolchain)
            for trial in trials
        ]
        self._records += records
        if self._log is not None:
            self._log.append(records)
        return records

    def _device_lost(self) -> str | None:
        if self._lost_rounds < _MAX_LOST_ROUNDS:
            return None
        if not self._records:
            name = self._option.runner.device.name
            raise DeviceLostError(f"the device {name} does not measure anything: {self._lost_because}")
        return "device-lost"

    def _tell(self, event: TuneEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _result(self, stop_reason: str) -> TuneResult:
        outcomes: dict[str, Counter[str]] = {}
        for record in self._records:
            if record.confirmed:
                continue
            outcomes.setdefault(record.workload_key, Counter())[record.outcome.value] += 1
        return TuneResult(
            records=tuple(self._records),
            tasks=tuple(_summary(one, outcomes.get(one.task.workload.key, Counter())) for one in self._tasks),
            stop_reason=stop_reason,
            trials=self._trials,
            failures=self._failures,
            best_latency_sec=self._best_latency_sec,
            wall_sec=self._wall_sec,
        )

    def close(self) -> None:
        for one in self._tasks:
            one.close()


def _summary(one: TaskProgress, outcomes: Mapping[str, int]) -> TaskSummary:
    args = [spec.to_json() for spec in one.task.workload.args]
    return TaskSummary(
        name=one.task.workload.name,
        workload_key=one.task.workload.key,
        weight=one.task.weight,
        trials=one.trials,
        confirmations=one.confirmations,
        outcomes=dict(outcomes),
        best_cost_sec=one.best_sec,
        spent_sec=one.spent_sec,
        exhausted=one.exhausted,
        failed=one.failed,
        flops=one.task.workload.flops,
        dtype=kernel_dtype(args),
        moved_bytes=kernel_bytes(args, None if one.space is None else one.space.computation),
    )
