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
from tunefarm_tuning.search.confirmation import confirm_best, search_budget
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
        return latency_sec([task.grouped for task in self._tasks])

    def until_spent(self, budget: Budget, round_size: int) -> TuneResult:
        """Search until the budget is spent, then confirm the winners; see `tune`."""
        queue = RoundQueue(self._tasks, self._option, round_size=round_size, histories=self._histories)
        try:
            with closing(queue):
                stop_reason = self._search(queue, budget)
            if self._confirms and stop_reason != "device-lost":
                self._confirm_winners(budget)
        except KeyboardInterrupt:
            stop_reason = "interrupted"
        if self._tasks and not self._records and all(task.failed for task in self._tasks):
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
            next_round = queue.next(Spent(budget=search, trials=self._trials, wall_sec=self._wall_sec))
            if next_round is None:
                return "exhausted"
            self._measure_round(next_round)
            stop_reason = self._device_lost() or search.exhausted_by(
                trials=self._trials,
                wall_sec=self._wall_sec,
                trials_since_improvement=self._trials_since_improvement,
                gain_per_min=scheduler.gain_per_min(scheduler_states(self._tasks)),
            )
            if stop_reason is not None:
                return stop_reason

    def _measure_round(self, next_round: NextRound) -> None:
        index = next_round.task
        task = self._tasks[index]
        name = task.task.workload.name
        self._tell(TaskPicked(task=index, name=name, round=len(task.history), wall_sec=self._wall_sec))
        try:
            outcomes = next_round.prepared.measure(task.best_sec, at_most=next_round.size)
        except Exception as error:  # noqa: BLE001  one bad task must not cost the others hours of search
            reason = reason_of(error)
            self._first_error = self._first_error or error
            task.failed = reason
            self._tell(TaskEnded(task=index, name=name, reason=reason, wall_sec=self._wall_sec))
            return
        task.saved_share = next_round.prepared.saved_share
        # Rounds overlap: a round takes the time since the end of the round before.
        ended = time.monotonic()
        spent_sec, self._round_ended = ended - self._round_ended, ended
        trials = [outcome for outcome in outcomes if outcome.is_trial]
        records = self._record(task, trials)
        exhausted = not outcomes and not next_round.blind
        improved = task.add_round(records, spent_sec=spent_sec, exhausted=exhausted)
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
                best_cost_sec=task.best_sec,
                best_latency_sec=self._best_latency_sec,
                tasks_with_kernel=sum(other.best_sec is not None for other in self._tasks),
                wall_sec=self._wall_sec,
            )
        )
        if task.exhausted:
            self._tell(TaskEnded(task=index, name=name, reason=None, wall_sec=self._wall_sec))

    def _search_budget(self, budget: Budget) -> Budget:
        """Return the budget without the time that confirmation will take."""
        if budget.wall_sec is None or not self._confirms:
            return budget
        expected_sec = sum(task.confirming_sec(len(task.configs_to_confirm)) for task in self._tasks)
        return search_budget(budget, expected_sec)

    def _confirm_winners(self, budget: Budget) -> None:
        """Measure the few best of each task whose winner is not clear again; tasks that matter most come first."""
        latency = {i: task.task.weight * (task.best_sec or 0.0) for i, task in enumerate(self._tasks)}
        for index in sorted(latency, key=lambda i: (-latency[i], i)):
            while configs := self._tasks[index].configs_to_confirm:
                expected_sec = self._tasks[index].confirming_sec(len(configs))
                if budget.wall_sec is not None and self._wall_sec + expected_sec > budget.wall_sec:
                    break
                self._confirm(index, configs)

    def _confirm(self, index: int, configs: Sequence[Config]) -> None:
        task = self._tasks[index]
        assert task.space is not None
        failed: str | None = None
        outcomes: tuple[TrialOutcome, ...] = ()
        try:
            outcomes = confirm_best(task.task, configs, self._option, space_key=task.space.key)
        except Exception as error:  # noqa: BLE001  the search's results must not be lost to a check of them
            failed = reason_of(error)
        task.add_confirmation(self._record(task, [outcome for outcome in outcomes if outcome.is_trial]))
        self._tell(
            BestConfirmed(
                task=index,
                name=task.task.workload.name,
                outcomes=outcomes,
                best_cost_sec=task.best_sec,
                best_latency_sec=self._best_latency_sec,
                failed=failed,
                wall_sec=self._wall_sec,
            )
        )

    def _record(self, task: TaskProgress, trials: Sequence[TrialOutcome]) -> list[TuningRecord]:
        device = self._option.runner.device
        records = [
            trial.to_record(task.task, device, tuner=task.tuner_name, toolchain=self._toolchain)
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
            raise DeviceLostError(f"the device {name} cannot measure: {self._lost_because}")
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
            tasks=tuple(
                _summary(task, outcomes.get(task.task.workload.key, Counter())) for task in self._tasks
            ),
            stop_reason=stop_reason,
            trials=self._trials,
            failures=self._failures,
            best_latency_sec=self._best_latency_sec,
            wall_sec=self._wall_sec,
        )

    def close(self) -> None:
        """Close the tasks' tuners."""
        for task in self._tasks:
            task.close()


def _summary(progress: TaskProgress, outcomes: Mapping[str, int]) -> TaskSummary:
    task = progress.task
    args = [spec.to_json() for spec in task.workload.args]
    return TaskSummary(
        name=task.workload.name,
        workload_key=task.workload.key,
        weight=task.weight,
        trials=progress.trials,
        confirmations=progress.confirmations,
        outcomes=dict(outcomes),
        best_cost_sec=progress.best_sec,
        spent_sec=progress.spent_sec,
        exhausted=progress.exhausted,
        failed=progress.failed,
        flops=task.workload.flops,
        dtype=kernel_dtype(args),
        moved_bytes=kernel_bytes(args, None if progress.space is None else progress.space.computation),
    )
