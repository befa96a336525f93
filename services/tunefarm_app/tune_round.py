"""One round of one task: the tuner rebuilt from the database, candidates built and measured on a leased device."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache

import structlog

from tunefarm_app.claiming import Claim, ClaimingTuner
from tunefarm_app.full_disk import as_full_disk
from tunefarm_app.kept_records import KEPT
from tunefarm_app.lanes import InFlight, claim
from tunefarm_app.like_tasks import like_histories
from tunefarm_app.step_context import StepContext
from tunefarm_app.task_rows import engine_space, engine_task
from tunefarm_app.tune_progress import TaskRow
from tunefarm_db.repositories.trials import Tried
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.config import Config
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.errors import (
    CancelledError,
    LeaseLostError,
    TransientError,
    TunefarmError,
    reason_of,
)
from tunefarm_tuning.measure import DeviceInfo, Outcome
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.round import TrialOutcome, run_round
from tunefarm_tuning.target import Target
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.tuner import TrialResult, Tuner, make_tuner, task_seed

log = structlog.stdlib.get_logger(__name__)

_LOSSES_BEFORE_SETTING_ASIDE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round found.

    Attributes:
        space: The task's config space, None where it cannot be made.
        new_space: The same, where it is to be put on record: it was not, or an older release did it.
        failed: Why the task cannot be tuned (further); None where it can.
        crowded: Nothing was tried because other lanes were at all that is left of the task.
    """

    position: int
    task: TuningTask
    device: DeviceInfo | None
    space: ConfigSpace | None
    new_space: ConfigSpace | None
    outcomes: Sequence[TrialOutcome]
    failed: str | None
    crowded: bool
    spent_sec: float


def measure_round(
    context: StepContext,
    job: Job,
    task_row: TaskRow,
    device: DeviceLease,
    chosen: InFlight,
    began: float,
) -> Round:
    """Let the task's tuner try configs on the device.

    Args:
        context: The step.
        job: The job.
        task_row: The task.
        device: Where to measure.
        chosen: How many configs; the job's other lanes learn which.
        began: Monotonic time at which the round began.
    """
    row = task_row.row
    structlog.contextvars.bind_contextvars(task=row.position, workload_key=row.workload_key)
    with context.services.uow.read() as repos:
        workload = repos.workloads.get(row.workload_key, row.toolchain)
        trials = repos.trials.tried(job.id, row.position)
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
        earlier = KEPT.records(repos, sorted(ids))
    task = engine_task(workload, Target.from_json(job.target), row.weight)
    info: DeviceInfo | None = None
    space: ConfigSpace | None = None
    known = engine_space(stored)
    outcomes: Sequence[TrialOutcome] = ()
    failed: str | None = None
    crowded = False
    try:
        with context.engine.measuring(device.device, cancellation=context.cancellation) as option:
            space = known or option.builder.config_space(task)
            info = option.runner.device
            tuner = make_tuner(job.tuner, task, space, seed=task_seed(job.seed, task))
            with closing(tuner), context.cancellation.attach(tuner):
                _tell(tuner, trials, earlier)
                if tuner.learns_from_others:
                    tuner.load_history(like_histories(context, row, task, space, device))
                claiming = ClaimingTuner(tuner, _claim(context, chosen))
                outcomes = run_round(
                    claiming,
                    task,
                    chosen.trials,
                    option,
                    best_sec=task_row.best_sec,
                    cancelled=lambda: context.lease.reason is not None,
                )
                crowded = claiming.passed_over and not outcomes
    except (TransientError, LeaseLostError, CancelledError):
        raise
    except Exception as error:
        context.lease.check()
        if (full := as_full_disk(error)) is not None:
            raise full from error
        # One task that cannot be scheduled, or breaks a tuner, must not cost the others their search.
        expected = isinstance(error, TunefarmError)
        failed = reason_of(error)
        log.warning("task cannot be tuned", position=row.position, error=failed, exc_info=not expected)
    return Round(
        position=row.position,
        task=task,
        device=info,
        space=space,
        new_space=space if known is None else None,
        outcomes=outcomes,
        failed=failed,
        crowded=crowded,
        spent_sec=time.monotonic() - began,
    )


def _claim(context: StepContext, chosen: InFlight) -> Claim:
    mine = chosen

    def claim_for_us(asked: Sequence[str]) -> Collection[str]:
        nonlocal mine
        with context.note() as repos:
            context.job(repos)
            mine = claim(repos, context.step, mine, asked)
        return mine.asked

    return claim_for_us


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
