"""How far a run of `tune` is with one task: its tuner, its rounds, its records, its best."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_tuning.measure.interfaces import Builder, DeviceInfo
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import without_superseded
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.contenders import MAX_CONFIRMATIONS, confirming_sec, contenders
from tunefarm_tuning.search.scheduler import RoundSummary, TaskState
from tunefarm_tuning.search.task_groups import GroupedTask, for_scheduler
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner import TrialResult, Tuner, make_tuner, task_seed
from tunefarm_tuning.workload.task import TuningTask


class TaskProgress:
    """One task of a run. The tuner is made at the first round: a short budget may never come to it.

    Attributes:
        best_sec: Best cost known, earlier records included (once it is open: those of its space); None where nothing works.
        spent_sec: Wall-clock of its rounds.
        confirmations: How often its best were measured again.
        failed: Why the task gets no more rounds, where something broke.
        space: Its config space; None until it is open.
        saved_share: Of the time of its latest round: what is saved if the next is prepared meanwhile.
    """

    def __init__(
        self,
        task: TuningTask,
        *,
        tuner: str,
        seed: int,
        device: DeviceInfo,
        toolchain: str,
        earlier: Sequence[TuningRecord],
    ) -> None:
        self.task = task
        self.tuner_name = tuner
        self._seed = task_seed(seed, task)
        alike = [r for r in earlier if r.workload_key == task.workload.key]
        here = (task.target.key, device.model, toolchain)
        self._own = [r for r in alike if (r.target_key, r.device_model, r.toolchain) == here]
        self._foreign = [r for r in alike if (r.target_key, r.device_model, r.toolchain) != here]
        self.best_sec = _best_sec(self._own)
        self.history: list[RoundSummary] = []
        self.trials = 0
        self.spent_sec = 0.0
        self.confirmations = 0
        self.exhausted = False
        self.failed: str | None = None
        self.space: ConfigSpace | None = None
        self.saved_share = 0.0
        self._tuner: Tuner | None = None

    @property
    def has_records(self) -> bool:
        """Whether anything is on record of it on this target and device."""
        return bool(self._own)

    @property
    def state(self) -> TaskState:
        """What the scheduler is shown, but for the task's alternatives."""
        return TaskState(
            weight=self.task.weight,
            flops=self.task.workload.flops,
            history=tuple(self.history),
            spent_sec=self.spent_sec,
            best_sec=self.best_sec,
            exhausted=self.exhausted or self.failed is not None,
        )

    @property
    def grouped(self) -> GroupedTask:
        """What it may stand for, and what it costs."""
        return GroupedTask(
            workload_key=self.task.workload.key,
            weight=self.task.weight,
            best_sec=self.best_sec,
            alternative=self.task.alternative,
        )

    @property
    def known(self) -> TaskHistory | None:
        """What other tasks can learn from this one: its records on this target and device; None until it is open."""
        return None if self.space is None else TaskHistory(space=self.space, records=tuple(self._own))

    @property
    def foreign(self) -> list[TaskHistory]:
        """Its records of elsewhere, by target, device model and toolchain; empty until it is open."""
        if self.space is None:
            return []
        places: dict[tuple[str, str, str], list[TuningRecord]] = {}
        for record in self._foreign:
            places.setdefault((record.target_key, record.device_model, record.toolchain), []).append(record)
        return [TaskHistory(space=self.space, records=tuple(found)) for found in places.values()]

    @property
    def contenders(self) -> list[Config]:
        """The configs to be measured again before a winner is named; empty where it is clear, or was tried enough."""
        if self.space is None or self.failed is not None or self.confirmations >= MAX_CONFIRMATIONS:
            return []
        return contenders(r for r in self._own if r.space_key == self.space.key)

    def confirming_sec(self, num_configs: int) -> float:
        """Return how long measuring so many of its configs again may take."""
        return confirming_sec(self._own, num_configs)

    def open(self, builder: Builder) -> ConfigSpace:
        """Return the task's config space, asked for at the first call.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        if self.space is None:
            space = builder.config_space(self.task)
            # A config of another space (an older tunefarm's) cannot be applied: its cost is nothing to beat or to report.
            self._own = [record for record in self._own if record.space_key == space.key]
            self.best_sec = _best_sec(self._own)
            self.space = space
        return self.space

    def tuner(self, builder: Builder) -> Tuner:
        """Return the task's tuner, made and told all its own records at the first call.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        if self._tuner is None:
            space = self.open(builder)
            self._tuner = make_tuner(self.tuner_name, self.task, space, seed=self._seed)
            self._tuner.tell(
                [
                    TrialResult(asked=r.config, config=r.config, outcome=r.outcome, cost_sec=r.cost_sec)
                    for r in without_superseded(self._own)
                    if r.space_key == space.key
                ]
            )
        return self._tuner

    def add_round(self, records: Sequence[TuningRecord], *, spent_sec: float, spent: bool) -> bool:
        """Take in a finished round; return whether it found a better kernel.

        Args:
            records: Of its trials.
            spent_sec: Its wall-clock.
            spent: Nothing is left to try.
        """
        before = self.best_sec
        best = min((r.cost_sec for r in records if r.cost_sec is not None), default=None)
        if best is not None and (before is None or best < before):
            self.best_sec = best
        self._own += records
        self.trials += len(records)
        self.spent_sec += spent_sec
        self.history.append(RoundSummary(trials=len(records), best_sec=self.best_sec))
        self.exhausted = spent
        return self.best_sec != before

    def add_confirmation(self, records: Sequence[TuningRecord]) -> None:
        """Take in what measuring the best again said; the best cost may be higher after it."""
        self.confirmations += 1
        self._own += records
        self.best_sec = _best_sec(self._own)

    def close(self) -> None:
        if self._tuner is not None:
            self._tuner.close()


def _best_sec(records: Sequence[TuningRecord]) -> float | None:
    return min((r.cost_sec for r in without_superseded(records) if r.cost_sec is not None), default=None)


def scheduler_states(tasks: Sequence[TaskProgress]) -> list[TaskState]:
    """Return what the scheduler is shown of a run's tasks, in order."""
    return for_scheduler([one.grouped for one in tasks], [one.state for one in tasks])
