"""A round of one task: rebuild and ask the tuner, claim and build its configs, measure them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.tuning.plan import PlannedTask
from tunefarm_app.tuning.rebuilt_tuner import RebuiltTuner
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.core.errors import CancelledError, LeaseLostError, TransientError, TunefarmError
from tunefarm_tuning.measure.interfaces import Builder, MeasureOption
from tunefarm_tuning.search.round import PreparedRound, prepare_round
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner import Tuner
from tunefarm_tuning.workload.task import TuningTask


class TaskRound:
    """A round of one task. It is prepared once, then measured or discarded once.

    `device` is one of those on which it may be measured; `claim` claims configs for it (see `Claims`).

    Concurrency: one caller; `close` from any thread.

    Attributes:
        lost: Why this process may no longer prepare it; None while it may.
    """

    def __init__(
        self,
        context: StepContext,
        job: Job,
        task: PlannedTask,
        device: DeviceLease,
        claim: Callable[[Sequence[str]], Collection[str]],
    ) -> None:
        self._context = context
        self._device = device
        self._claim_configs = claim
        self._tuner = RebuiltTuner(context.services, job, task.row, device)
        self._builder: Builder | None = None
        self._prepared: PreparedRound | None = None
        self.lost: TunefarmError | None = None

    @property
    def task(self) -> TuningTask:
        """The task in the engine's form."""
        return self._tuner.task

    @property
    def space(self) -> ConfigSpace | None:
        """The task's config space; None until its tuner was opened."""
        return self._tuner.space

    @property
    def new_space(self) -> ConfigSpace | None:
        """The config space if it must be stored, because there is none or an older release stored it."""
        return self._tuner.space if self._tuner.stored_space is None else None

    @property
    def passed_over(self) -> bool:
        """Whether other tracks had claimed a config that its tuner proposed."""
        return self._prepared is not None and self._prepared.passed_over

    def prepare(self, option: MeasureOption, n: int) -> None:
        """Start asking for `n` configs and building them; at once if the device is another machine."""
        self._builder = option.builder
        self._prepared = prepare_round(
            lambda: self._open_tuner(option.builder),
            self.task,
            n,
            option,
            cancelled=lambda: self._context.lease.reason is not None,
            claim=self._claim,
        )

    def measure(
        self, context: StepContext, option: MeasureOption, *, best_sec: float | None, at_most: int
    ) -> Sequence[TrialOutcome]:
        """Measure it in the step that prepared it, or in the next."""
        assert self._prepared is not None
        self._context = context
        return self._prepared.measure(best_sec, at_most=at_most, runner=option.runner)

    def fits(self, device: DeviceLease, option: MeasureOption) -> bool:
        """Return whether the device can measure it: the tuner is for such devices, and the kernels are on this machine."""
        same_model = device.device.device_model == self._device.device.device_model
        return same_model and self._builder is option.builder and not option.runner.shares_host

    def wait_settled(self, timeout_sec: float) -> bool:
        """Wait until its tuner is no longer asked; return False after the time-out."""
        return self._prepared is None or self._prepared.wait_settled(timeout_sec)

    def discard(self) -> None:
        """End the running work and delete the kernels. Does nothing once the round was measured."""
        self.close()
        if self._prepared is not None:
            self._prepared.discard()

    def close(self) -> None:
        """Close its tuner."""
        self._tuner.close()

    def _open_tuner(self, builder: Builder) -> Tuner:
        try:
            return self._tuner.open(builder)
        except (TransientError, LeaseLostError, CancelledError) as error:
            self.lost = error
            raise

    def _claim(self, keys: Sequence[str]) -> Collection[str]:
        try:
            return self._claim_configs(keys)
        except TunefarmError as error:
            self.lost = error
            raise
