"""A round of one task of a job, prepared: its tuner rebuilt from the database and asked, what it proposes being built."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import current_space, engine_task
from tunefarm_app.tuning.claiming import Claim, ClaimingTuner
from tunefarm_app.tuning.progress import TaskRow
from tunefarm_app.tuning.record_cache import KEPT
from tunefarm_app.tuning.transfer import like_histories
from tunefarm_db.repositories.jobs.trials import Tried
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.core.errors import CancelledError, LeaseLostError, TransientError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Builder, MeasureOption
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.round import PreparedRound, prepare_round
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tuner import TrialResult, Tuner, make_tuner, task_seed

_LOSSES_BEFORE_SETTING_ASIDE = 3


class TaskRound:
    """A round on its way from the database to a device. It is measured or discarded, once.

    Concurrency: one caller; `close` from any thread.

    Args:
        context: The step that prepares it.
        job: The job.
        task_row: The task.
        device: One of those on which it may be measured.
        claim: Claims the configs that its tuner proposes.

    Attributes:
        task: The task.
        known: Its config space as it is on record, None where it is not, or is of an older release.
        space: Its config space; None until it is there.
        lost: Why it was not ours to prepare any more; None while it is.
    """

    def __init__(
        self, context: StepContext, job: Job, task_row: TaskRow, device: DeviceLease, claim: Claim
    ) -> None:
        self._context = context
        self._job = job
        self._row = row = task_row.row
        self._device = device
        self._claim = claim
        with context.services.uow.read() as repos:
            workload = repos.workloads.get(row.workload_key, row.toolchain)
            self._trials = repos.trials.tried(job.id, row.position)
            stored = repos.spaces.get(row.workload_key, target_key=job.target_key, toolchain=row.toolchain)
            ids = repos.records.history_ids(
                row.workload_key,
                target_key=job.target_key,
                device_model=device.device.device_model,
                toolchain=row.toolchain,
                space_key=row.space_key,
                except_job=job.id,
                limit=context.services.settings.history_limit,
            )
            self._earlier = KEPT.records(repos, sorted(ids))
        self.task = engine_task(workload, Target.from_json(job.target), row.weight)
        self.known = current_space(stored)
        self.space: ConfigSpace | None = None
        self.lost: TunefarmError | None = None
        self._tuner: Tuner | None = None
        self._claiming: ClaimingTuner | None = None
        self._builder: Builder | None = None
        self._prepared: PreparedRound | None = None

    @property
    def passed_over(self) -> bool:
        """Whether other tracks had some of what its tuner proposed."""
        return self._claiming is not None and self._claiming.passed_over

    def prepare(self, option: MeasureOption, n: int) -> None:
        """Begin to ask for `n` configs and to build them: at once where the device is another machine."""
        self._builder = option.builder
        self._prepared = prepare_round(
            lambda: self._open(option.builder),
            self.task,
            n,
            option,
            cancelled=lambda: self._context.lease.reason is not None,
        )

    def measure(
        self, context: StepContext, option: MeasureOption, *, best_sec: float | None, at_most: int
    ) -> Sequence[TrialOutcome]:
        """Measure it in a step: the one that prepared it, or the next."""
        assert self._prepared is not None
        self._context = context
        return self._prepared.measure(best_sec, at_most=at_most, runner=option.runner)

    def fits(self, device: DeviceLease, option: MeasureOption) -> bool:
        """Return whether it can be measured there: its tuner knows such devices, and its kernels are at hand."""
        alike = device.device.device_model == self._device.device.device_model
        return alike and self._builder is option.builder and not option.runner.shares_host

    def wait_settled(self, sec: float) -> bool:
        """Wait, so long at most, until its tuner is not asked any more; return whether that is so."""
        return self._prepared is None or self._prepared.candidates.settled.wait(sec)

    def discard(self) -> None:
        """End what is under way, and delete what was built. It does nothing once it was measured."""
        self.close()
        if self._prepared is not None:
            self._prepared.discard()

    def close(self) -> None:
        """End its tuner."""
        if self._tuner is not None:
            self._tuner.close()

    def _open(self, builder: Builder) -> Tuner:
        try:
            self.space = space = self.known or builder.config_space(self.task)
            self._tuner = tuner = make_tuner(
                self._job.tuner, self.task, space, seed=task_seed(self._job.seed, self.task)
            )
            _tell(tuner, self._trials, self._earlier)
            if tuner.learns_from_others:
                tuner.load_history(like_histories(self._context, self._row, self.task, space, self._device))
        except (TransientError, LeaseLostError, CancelledError) as error:
            self.lost = error
            raise
        self._claiming = ClaimingTuner(tuner, self._claim_ours)
        return self._claiming

    def _claim_ours(self, asked: Sequence[str]) -> Collection[str]:
        try:
            return self._claim(asked)
        except TunefarmError as error:
            self.lost = error
            raise


def _tell(tuner: Tuner, trials: Sequence[Tried], earlier: Sequence[TuningRecord]) -> None:
    """Rebuild the tuner's state from what is on record."""
    tuner.tell([_told(trial) for trial in trials])
    tuner.set_aside(_lost_too_often(trials))
    # What other jobs measured here counts as tried.
    tuner.tell(
        [
            TrialResult(asked=r.config, config=r.config, outcome=r.outcome, cost_sec=r.cost_sec)
            for r in earlier
            if r.space_key == tuner.space.key
        ]
    )


def _lost_too_often(trials: Sequence[Tried]) -> list[Config]:
    """Return the configs that were at work each time when a device was lost.

    That is not their fault on record, but to try them for ever would cost every round of the job. Those that merely
    stood in line when the device went have no time of measuring, and are tried again.
    """
    lost = [one for one in trials if one.outcome == Outcome.INFRASTRUCTURE_ERROR and one.run_sec > 0.0]
    losses = Counter(one.config_key for one in lost)
    keys = {
        key
        for one in lost
        if losses[one.config_key] >= _LOSSES_BEFORE_SETTING_ASIDE
        for key in (one.asked_key, one.config_key)
    }
    return [_config(key) for key in sorted(keys)]


def _told(trial: Tried) -> TrialResult:
    return TrialResult(
        asked=_config(trial.asked_key),
        config=_config(trial.config_key),
        outcome=Outcome(trial.outcome),
        cost_sec=trial.cost_sec,
    )


@lru_cache(maxsize=8192)  # of a few tasks: their trials are told again before every round
def _config(key: str) -> Config:
    return Config.from_json(json.loads(key))
