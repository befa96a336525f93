"""One round of one task: candidates built and measured on a leased device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import InFlight
from tunefarm_app.runtime.full_disk import as_full_disk
from tunefarm_app.tuning.claiming import Claims
from tunefarm_app.tuning.prefetch import RoundAhead
from tunefarm_app.tuning.prepared_round import TaskRound
from tunefarm_app.tuning.progress import TaskRow
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.core.errors import (
    CancelledError,
    LeaseLostError,
    TransientError,
    TunefarmError,
    reason_of,
)
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round found.

    Attributes:
        space: The task's config space, None where it cannot be made.
        new_space: The same, where it is to be put on record: it was not, or an older release did it.
        failed: Why the task cannot be tuned (further); None where it can.
        crowded: Nothing was tried because other tracks were at all that is left of the task.
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
    prepared: TaskRound | None = None,
) -> Round:
    """Let the task's tuner try configs on the device; begin to prepare the track's next round meanwhile.

    Args:
        context: The step.
        job: The job.
        task_row: The task.
        device: Where to measure.
        chosen: How many configs; the job's other tracks learn which.
        began: Monotonic time at which the round began.
        prepared: The same round, where this process has prepared it.
    """
    row = task_row.row
    structlog.contextvars.bind_contextvars(task=row.position, workload_key=row.workload_key)
    claims = Claims(context, chosen)
    found = prepared or TaskRound(context, job, task_row, device, claims.claim)
    info: DeviceInfo | None = None
    outcomes: Sequence[TrialOutcome] = ()
    failed: str | None = None
    crowded = False
    try:
        with (
            context.engine.measuring(device.device, cancellation=context.cancellation) as option,
            ExitStack() as stack,
        ):
            if prepared is not None and not prepared.fits(device, option):
                prepared.discard()
                found = TaskRound(context, job, task_row, device, claims.claim)
            stack.callback(found.discard)
            stack.enter_context(context.cancellation.attach(found))
            info = option.runner.device
            if found is not prepared:
                found.prepare(option, chosen.trials)
            if context.prefetch is not None and not option.runner.shares_host:
                context.prefetch.begin(lambda: RoundAhead(context, job, device, option, claims, after=found))
            outcomes = found.measure(context, option, best_sec=task_row.best_sec, at_most=chosen.trials)
            crowded = found.passed_over and not outcomes
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
        task=found.task,
        device=info,
        space=found.space,
        new_space=found.space if found.known is None else None,
        outcomes=outcomes,
        failed=failed,
        crowded=crowded,
        spent_sec=time.monotonic() - began,
    )
