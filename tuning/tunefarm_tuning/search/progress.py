"""The progress of a run of `tune` with one task: its tuner, its rounds, its records, its best cost."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_tuning.measure.interfaces import Builder, DeviceInfo
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import without_superseded
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.confirmation import MAX_CONFIRMATIONS, configs_to_confirm, confirming_sec
from tunefarm_tuning.search.scheduler import RoundSummary, TaskState
from tunefarm_tuning.search.task_groups import GroupedTask, for_scheduler
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner import Tuner, make_tuner, result_of_record, task_seed
from tunefarm_tuning.workload.task import TuningTask


class TaskProgress:
    """A task of a run. Its tuner is made at its first round, because a short budget may not reach it.

    Attributes:
        best_sec: Best known cost, earlier records included (once it is open: those of its space); None if no config works.
        confirmations: How often its best configs were measured again.
        failed: The failure that ended the task's rounds; None if there was none.
        space: Its config space; None until it is open.
        saved_share: Share of its latest round's time that is saved if the next is prepared meanwhile.
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
        here = (task.target.key, device.model, toolchain)
        records = [record for record in earlier if record.workload_key == task.workload.key]
        self._own = [record for record in records if _measured_on(record) == here]
        self._foreign = [record for record in records if _measured_on(record) != here]
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
        """Whether there are records of it on this target and device."""
        return bool(self._own)

    @property
    def state(self) -> TaskState:
        """The task as the scheduler sees it, without its alternatives."""
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
        """The task with its alternatives and its best cost."""
        return GroupedTask(
            workload_key=self.task.workload.key,
            weight=self.task.weight,
            best_sec=self.best_sec,
            alternative=self.task.alternative,
        )

    @property
    def known(self) -> TaskHistory | None:
        """Its records on this target and device, for other tasks to learn from; None until it is open."""
        return None if self.space is None else TaskHistory(space=self.space, records=tuple(self._own))

    @property
    def foreign(self) -> list[TaskHistory]:
        """Its records of other targets, device models and toolchains, one history each; empty until it is open."""
        if self.space is None:
            return []
        groups: dict[tuple[str, str, str], list[TuningRecord]] = {}
        for record in self._foreign:
            groups.setdefault(_measured_on(record), []).append(record)
        return [TaskHistory(space=self.space, records=tuple(records)) for records in groups.values()]

    @property
    def configs_to_confirm(self) -> list[Config]:
        """The configs to confirm before a winner is named; empty if it is clear or was tried often enough."""
        if self.space is None or self.failed is not None or self.confirmations >= MAX_CONFIRMATIONS:
            return []
        return configs_to_confirm(record for record in self._own if record.space_key == self.space.key)

    def confirming_sec(self, num_configs: int) -> float:
        """Return the expected seconds of confirming so many of its configs."""
        return confirming_sec(self._own, num_configs)

    def open(self, builder: Builder) -> ConfigSpace:
        """Return the task's config space; the builder is asked for it at the first call.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        if self.space is None:
            space = builder.config_space(self.task)
            # A config of another space (an older tunefarm's) cannot be applied: its cost must not be beaten or reported.
            self._own = [record for record in self._own if record.space_key == space.key]
            self.best_sec = _best_sec(self._own)
            self.space = space
        return self.space

    def tuner(self, builder: Builder) -> Tuner:
        """Return the task's tuner; it is made, and told the task's records, at the first call.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        if self._tuner is None:
            space = self.open(builder)
            self._tuner = make_tuner(self.tuner_name, self.task, space, seed=self._seed)
            self._tuner.tell(
                [
                    result_of_record(record)
                    for record in without_superseded(self._own)
                    if record.space_key == space.key
                ]
            )
        return self._tuner

    def add_round(self, records: Sequence[TuningRecord], *, spent_sec: float, exhausted: bool) -> bool:
        """Add a finished round; return whether it found a better kernel. `exhausted`: no untried config is left."""
        before_sec = self.best_sec
        round_sec = min((record.cost_sec for record in records if record.cost_sec is not None), default=None)
        if round_sec is not None and (before_sec is None or round_sec < before_sec):
            self.best_sec = round_sec
        self._own += records
        self.trials += len(records)
        self.spent_sec += spent_sec
        self.history.append(RoundSummary(trials=len(records), best_sec=self.best_sec))
        self.exhausted = exhausted
        return self.best_sec != before_sec

    def add_confirmation(self, records: Sequence[TuningRecord]) -> None:
        """Add a confirmation of the best configs; the best cost may be higher afterwards."""
        self.confirmations += 1
        self._own += records
        self.best_sec = _best_sec(self._own)

    def close(self) -> None:
        if self._tuner is not None:
            self._tuner.close()


def _best_sec(records: Sequence[TuningRecord]) -> float | None:
    costs = [record.cost_sec for record in without_superseded(records) if record.cost_sec is not None]
    return min(costs, default=None)


def _measured_on(record: TuningRecord) -> tuple[str, str, str]:
    return record.target_key, record.device_model, record.toolchain


def scheduler_states(tasks: Sequence[TaskProgress]) -> list[TaskState]:
    """Return a run's tasks as the scheduler sees them, in order."""
    return for_scheduler([task.grouped for task in tasks], [task.state for task in tasks])
