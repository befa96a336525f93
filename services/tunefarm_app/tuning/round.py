"""Round: candidates of one task are built and measured on a leased device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import Claims
from tunefarm_app.runtime.full_disk import as_full_disk
from tunefarm_app.tuning.plan import Choice, PlannedTask
from tunefarm_app.tuning.prefetch import PrefetchedRound
from tunefarm_app.tuning.task_round import TaskRound
from tunefarm_app.tuning.time_check import check_times
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.core.errors import (
    BROKE_PROTOCOL,
    CancelledError,
    DeviceLostError,
    LeaseLostError,
    TransientError,
    TunefarmError,
    reason_of,
)
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.worker import FULL_DISK
from tunefarm_tuning.measure.gpu.state import BUSY
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)

_LOSSES_IN_A_ROW = 9
"""A device is blamed after three candidates that each took it down three times without a measurement in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound:
    """The result of a round.

    Attributes:
        position: Position of the task in the job.
        space: The task's config space, None if it cannot be made.
        new_space: The same, if it must be stored because there is none or an older release stored it; else None.
        failed: Why the task cannot be tuned (further); None if it can.
        crowded: Nothing was tried because other tracks are trying all that is left of the task.
        spent_sec: Wall-clock of the round.
    """

    position: int
    task: TuningTask
    space: ConfigSpace | None
    new_space: ConfigSpace | None
    outcomes: Sequence[TrialOutcome]
    failed: str | None
    crowded: bool
    spent_sec: float

    @property
    def exhausted(self) -> bool:
        """Whether the task has no untried configs left."""
        return self.failed is not None or not (self.outcomes or self.crowded)


def measure_round(
    context: StepContext,
    job: Job,
    choice: Choice,
    device: DeviceLease,
    prefetched: PrefetchedRound | None,
    *,
    began: float,
) -> MeasuredRound:
    """Measure the chosen round on the device; meanwhile start to prefetch the track's next round.

    Args:
        context: The step.
        job: The job.
        choice: The plan, with a round.
        device: The leased device.
        prefetched: The round that this process has prefetched. It is measured if it is the chosen one.
        began: Monotonic time at which the round began.

    Raises:
        TransientError: ``disk-full`` if candidates could not be built for lack of space.
        DeviceLostError: If nothing could be measured, and no candidate was being measured; as `check_times`.
    """
    assert choice.round is not None
    task = choice.tasks[choice.round.position]
    structlog.contextvars.bind_contextvars(task=task.position, workload_key=task.workload_key)
    claims = Claims(context, choice.round)
    prepared = prefetched.round if prefetched is not None and choice.prefetched else None
    task_round = prepared or TaskRound(context, job, task, device, claims.claim)
    outcomes: Sequence[TrialOutcome] = ()
    failed: str | None = None
    try:
        with (
            context.engine.measuring(device.device, cancellation=context.cancellation) as option,
            ExitStack() as stack,
        ):
            if prepared is not None and not prepared.fits(device, option):
                prepared.discard()
                prepared = None
                task_round = TaskRound(context, job, task, device, claims.claim)
            stack.callback(task_round.discard)
            stack.enter_context(context.cancellation.attach(task_round))
            if prepared is None:
                task_round.prepare(option, choice.round.trials)
            if context.prefetch is not None and not option.runner.shares_host:
                context.prefetch.begin(
                    lambda: PrefetchedRound(context, job, device, option, claims, after=task_round)
                )
            outcomes = task_round.measure(
                context, option, best_sec=task.best_cost_sec, at_most=choice.round.trials
            )
    except (TransientError, LeaseLostError, CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  (`_why_untunable` decides)
        failed = _why_untunable(context, task, error)
    spent_sec = time.monotonic() - began
    context.lease.check()
    check_device(context, device, outcomes)
    check_times(context, job, device, task_round.task, task_round.space, outcomes)
    return MeasuredRound(
        position=task.position,
        task=task_round.task,
        space=task_round.space,
        new_space=task_round.new_space,
        outcomes=outcomes,
        failed=failed,
        crowded=failed is None and task_round.passed_over and not outcomes,
        spent_sec=spent_sec,
    )


def _why_untunable(context: StepContext, task: PlannedTask, error: Exception) -> str:
    """Return why a task cannot be tuned: one that cannot be scheduled, or breaks its tuner, must not end the search of the others.

    Raises:
        TransientError: ``disk-full`` if the error is no fault of the task's.
    """
    context.lease.check()
    if (full := as_full_disk(error)) is not None:
        raise full from error
    expected = isinstance(error, TunefarmError)
    reason = reason_of(error)
    log.warning("task cannot be tuned", position=task.position, error=reason, exc_info=not expected)
    return reason


def check_device(context: StepContext, device: DeviceLease, outcomes: Sequence[TrialOutcome]) -> None:
    """Note failures of the device itself; `device_blame` says what they mean for it.

    If it measured nothing, an event of the job says so. If a candidate was being measured when the device was lost, the
    round counts: the candidate is among the job's trials, and is set aside after three times. Otherwise the step is to be
    tried again.

    Raises:
        TransientError: ``disk-full`` if candidates could not be built for lack of space, which is not the device's fault.
        DeviceLostError: If there was something to measure, none of it was, and no candidate was being measured;
            ``device-busy`` if somebody else computes on the device, ``device-broke-protocol`` if it attacked.
    """
    # A refused candidate never reached the device, whatever its message says.
    lost = [outcome for outcome in outcomes if outcome.outcome is Outcome.INFRASTRUCTURE_ERROR]
    if any(outcome.code == FULL_DISK.code for outcome in lost):
        raise TransientError(FULL_DISK.message, code=FULL_DISK.code)
    if not outcomes:
        return
    broken = next((outcome for outcome in lost if outcome.code == BROKE_PROTOCOL), None)
    worst = broken or (lost or outcomes)[0]
    message = worst.message
    code = worst.code if worst.code in (BROKE_PROTOCOL, BUSY) else None
    trouble = DeviceLostError(message, code=code, device_id=device.device.id)
    if any(outcome.is_trial for outcome in outcomes):
        if lost:
            context.lease.blame_device(trouble)
        return
    name = device.device.name
    miss = {"device_id": device.device.id, "step_id": context.step.id}
    with context.note() as repos:
        facts = {"device": name, "message": message, **({} if code is None else {"code": code})}
        repos.events.add(context.job_id, "device-trouble", {**facts, **miss})
        events = repos.events.with_data(context.job_id, "device-trouble", miss)
        being_measured = any(outcome.run_sec > 0.0 for outcome in lost)
        counts = being_measured and repos.trials.losses_in_a_row(context.job_id) < _LOSSES_IN_A_ROW
    if counts:
        context.lease.blame_device(trouble)
        return
    if broken:
        raise trouble
    misses = 0 if code == BUSY else sum(event.data.get("code") != BUSY for event in events)
    raise DeviceLostError(
        f"device {name} measured nothing: {message}", code=code, device_id=device.device.id, misses=misses
    )
