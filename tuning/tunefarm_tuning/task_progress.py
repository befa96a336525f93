"""How far a run of `tune` is with one task: its tuner, its rounds, its best."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_tuning.measure import Builder, DeviceInfo
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.round import TrialOutcome
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.task_scheduler import RoundSummary, TaskState
from tunefarm_tuning.tuner import TrialResult, Tuner, make_tuner, task_seed


class TaskProgress:
    """One task of a run. The tuner is made at the first round: a short budget may never come to it.

    Attributes:
        best_sec: Best cost known, earlier records included; None where nothing works.
        failed: Why the task gets no more rounds, where something broke.
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
        self.best_sec = min((r.cost_sec for r in self._own if r.cost_sec is not None), default=None)
        self.history: list[RoundSummary] = []
        self.trials = 0
        self.spent_sec = 0.0
        self.exhausted = False
        self.failed: str | None = None
        self._tuner: Tuner | None = None

    @property
    def state(self) -> TaskState:
        """What the scheduler is shown."""
        return TaskState(
            weight=self.task.weight,
            flops=self.task.workload.flops,
            history=tuple(self.history),
            spent_sec=self.spent_sec,
            best_sec=self.best_sec,
            exhausted=self.exhausted or self.failed is not None,
        )

    def tuner(self, builder: Builder) -> Tuner:
        """Return the task's tuner, made and told all earlier records at the first call.

        Raises:
            InvalidInputError: If the workload cannot be scheduled.
        """
        if self._tuner is None:
            space = builder.config_space(self.task)
            self._tuner = make_tuner(self.tuner_name, self.task, space, seed=self._seed)
            self._tuner.load_history(self._foreign)
            self._tuner.tell(
                [
                    TrialResult(asked=r.config, config=r.config, outcome=r.outcome, cost_sec=r.cost_sec)
                    for r in self._own
                    if r.space_key == space.key
                ]
            )
        return self._tuner

    def add_round(self, outcomes: Sequence[TrialOutcome], *, spent_sec: float) -> bool:
        """Take in a finished round; return whether it found a better kernel."""
        costs = [o.cost_sec for o in outcomes if o.cost_sec is not None]
        improved = bool(costs) and (self.best_sec is None or min(costs) < self.best_sec)
        if improved:
            self.best_sec = min(costs)
        num_trials = sum(o.is_trial for o in outcomes)
        self.trials += num_trials
        self.spent_sec += spent_sec
        self.history.append(RoundSummary(trials=num_trials, best_sec=self.best_sec))
        self.exhausted = not outcomes
        return improved

    def close(self) -> None:
        if self._tuner is not None:
            self._tuner.close()
