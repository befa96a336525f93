"""Run a step: claim it, do its work, commit under its fencing token, send the steps that follow; retry it if it fails.

`failure_policy` says what happens to a step that goes wrong, `device_blame` what happens to its device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress

import structlog

from tunefarm_app.jobs.transitions import fail_subject
from tunefarm_app.leases.step_context import PrefetchSlot, StepContext
from tunefarm_app.leases.step_lease import StepLease
from tunefarm_app.models.removal import remove_unreferenced
from tunefarm_app.runtime.composition import Services
from tunefarm_app.runtime.full_disk import as_full_disk
from tunefarm_app.runtime.logs import OF_A_STEP
from tunefarm_app.runtime.step_limits import deadline_sec
from tunefarm_app.steps.compile_step import run_compile
from tunefarm_app.steps.draft_step import run_draft
from tunefarm_app.steps.extract_step import run_extract
from tunefarm_app.steps.failure_policy import Action, action_for
from tunefarm_app.steps.import_step import run_import
from tunefarm_app.steps.measure_step import run_measure
from tunefarm_app.steps.samples_step import run_samples
from tunefarm_app.steps.source_step import run_source
from tunefarm_app.tuning.confirm_step import run_confirm
from tunefarm_app.tuning.tune_step import run_tune
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Step, StepKind, StepState
from tunefarm_tuning.core.errors import (
    DeviceLostError,
    InvariantError,
    LeaseLostError,
    NotFoundError,
    TransientError,
    TunefarmError,
)
from tunefarm_tuning.core.spans import SpanKind, SpanLog, recording, span
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

_HANDLERS: dict[StepKind, Callable[[StepContext], None]] = {
    StepKind.IMPORT: run_import,
    StepKind.EXTRACT: run_extract,
    StepKind.TUNE: run_tune,
    StepKind.CONFIRM: run_confirm,
    StepKind.COMPILE: run_compile,
    StepKind.SOURCE: run_source,
    StepKind.SAMPLES: run_samples,
    StepKind.MEASURE: run_measure,
    StepKind.DRAFT: run_draft,
}
_BACKOFF_SEC = (2.0, 10.0, 30.0)
_WAIT_SEC = 10.0
_LOST = (LeaseLostError, TransientError)
"""Another worker has the step, or the database is away: then the lease expires, and the step is taken back."""


def run_steps(step_id: str, services: Services) -> None:
    """Run the step, then the job's next rounds while its turn lasts; send the other steps that follow.

    Going on in the same process saves a trip through the broker per round, and this process's compilers are warm.
    The next round is sent, and not begun here, when another job waits for the device, or the turn is over.
    """
    started = time.monotonic()

    def lasts() -> bool:
        return _may_go_on(services, time.monotonic() - started)

    current: str | None = step_id
    with closing(PrefetchSlot(lasts)) as prefetch:
        while current is not None:
            following = run_step(current, services, prefetch)
            current = None
            if len(following) == 1 and _goes_on_measuring(following[0]) and lasts():
                current = following[0].id
                if following[0].kind is not StepKind.TUNE:
                    prefetch.close()
            else:
                for step in following:
                    services.dispatcher.send(step.id, step.kind)


def _goes_on_measuring(step: Step) -> bool:
    """Return whether a tuning step planned this step: then this worker serves its queue."""
    return step.kind is StepKind.CONFIRM or (step.kind is StepKind.TUNE and step.round > 0)


def _may_go_on(services: Services, spent_sec: float) -> bool:
    settings = services.settings
    if spent_sec >= settings.step_chain_sec or services.draining():
        return False
    return spent_sec < settings.step_turn_sec or not any(
        services.dispatcher.queue_length(kind) for kind in (StepKind.IMPORT, StepKind.TUNE, StepKind.COMPILE)
    )


def run_step(step_id: str, services: Services, prefetch: PrefetchSlot | None = None) -> list[Step]:
    """Run one step, if it can be claimed; return the steps to start next, in order. Errors of the step are not raised.

    Raises:
        TransientError: If the database is away; the step's lease runs out then.
    """
    claimed = _claim(step_id, services)
    if claimed is None:
        log.debug("step cannot be claimed", step_id=step_id)
        return []
    step, job = claimed
    if job is not None:
        services.require_engine().serve(job.owner)
    with structlog.contextvars.bound_contextvars(
        step_id=step.id, job_id=step.job_id, model_id=step.model_id, step=step.kind.value, round=step.round
    ):
        log_of_step = SpanLog()
        try:
            with recording(log_of_step), span(f"step {step.kind.value}", SpanKind.STEP):
                return _run(step, services, prefetch)
        finally:
            _note_trace(services, step, log_of_step)
            structlog.contextvars.unbind_contextvars(*OF_A_STEP)


def _claim(step_id: str, services: Services) -> tuple[Step, Job | None] | None:
    """Claim a step; return it and its job, or None if it cannot be claimed, or its job was cancelled or paused when it was planned."""
    settings = services.settings
    with services.uow.write() as repos:
        step = repos.steps.claim(
            step_id, services.owner, settings.lease_sec, max_attempts=settings.max_step_attempts
        )
        if step is None or step.job_id is None:
            return None if step is None else (step, None)
        job = repos.jobs.get(step.job_id)
        if job.state is JobState.PAUSED:
            job = repos.jobs.get(job.id, lock=True)  # the job may be resumed at this moment
        if job.state.is_finished:
            repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
            return None
        if job.state is JobState.PAUSED:
            repos.steps.pause_step(step.id)
            return None
        return step, job


def _note_trace(services: Services, step: Step, spans: SpanLog) -> None:
    """Store what the attempt spent its time on; it is lost if the database is away."""
    if step.kind in (StepKind.MEASURE, StepKind.DRAFT):
        return  # its job has ended, and so has the job's trace; or it has what the job's own steps leave of the processor
    with suppress(TransientError), services.uow.write() as repos:
        repos.traces.add(model_id=step.model_id, job_id=step.job_id, spans=spans.spans, dropped=spans.dropped)


def _run(step: Step, services: Services, prefetch: PrefetchSlot | None) -> list[Step]:
    started = time.monotonic()
    with StepLease(services, step, limit_sec=deadline_sec(services.settings, step.kind)) as lease:
        context = StepContext(services=services, step=step, lease=lease, prefetch=prefetch)
        try:
            _HANDLERS[step.kind](context)
            log.info("step done", attempt=step.attempts, seconds=round(time.monotonic() - started, 3))
            for beside in context.beside:
                services.dispatcher.send(beside.id, beside.kind)
            return context.following
        except Exception as error:  # noqa: BLE001  (`_settle` decides about each kind)
            if isinstance(error, DeviceLostError) and lease.reason is None:
                lease.blame_device(error)
            # Children that are closed during the work fail in many ways; the reason to stop says more.
            _settle(services, step, lease.reason or error)
    return []


def _settle(services: Services, step: Step, error: Exception) -> None:
    """Release or fail a step after an error, as `failure_policy` decides."""
    known = error if isinstance(error, TunefarmError) else as_full_disk(error)
    # The stack is only logged: users do not see our code.
    shown = known or InvariantError(
        f"the {step.kind} step broke: {type(error).__name__}: {clean(str(error), 200)}"
    )
    action = action_for(shown)
    match action:
        case Action.CANCEL:
            log.info("step cancelled")
            _finish_quietly(services, step)
        case Action.PAUSE:
            log.info("step paused")
            _pause_quietly(services, step)
        case Action.DROP:
            _note_late_write(services, step, shown)
        case Action.HAND_BACK:
            _hand_back(services, step)
        case Action.FAIL | Action.WAIT | Action.RETRY_FAULT | Action.RETRY_LOSS:
            if isinstance(shown, InvariantError):
                log.error("step broke", exc_info=error, attempt=step.attempts)
            else:
                log.warning("step failed", code=shown.code, error=shown.message, attempt=step.attempts)
            _fail_or_release(services, step, shown, action)


def _fail_or_release(services: Services, step: Step, error: TunefarmError, action: Action) -> None:
    is_over = action is Action.FAIL or (action is not Action.WAIT and _was_last_try(services, step, action))
    try:
        with services.uow.write() as repos:
            if is_over:
                repos.steps.finish(step.id, step.fence, state=StepState.FAILED, error=error.to_json())
                fail_subject(repos, step, error.to_json(), final=action is Action.FAIL)
            else:
                _release(repos, step, error, action)
        if is_over and (useless := _refused_blob(services, step)) is not None:
            remove_unreferenced(services, useless)
    except LeaseLostError as lost:
        _note_late_write(services, step, lost)
    except TransientError as away:
        log.warning("step not handed back; its lease runs out", error=away.message)


def _refused_blob(services: Services, step: Step) -> str | None:
    """Return the SHA-256 of the upload that the failed step refuses; None if there is none."""
    with services.uow.read() as repos:
        if step.kind is StepKind.IMPORT:
            return repos.models.get(step.model_id, deleted=True).sha256
        if step.kind is StepKind.SAMPLES:
            with suppress(NotFoundError):  # they were deleted meanwhile, with their bytes
                return repos.samples.get(step.model_id, step.subject_id).sha256
    return None


def _was_last_try(services: Services, step: Step, action: Action) -> bool:
    if action is Action.RETRY_FAULT:
        return step.faults + 1 >= services.settings.max_step_faults
    return step.attempts >= services.settings.max_step_attempts


def _release(repos: Repositories, step: Step, error: TunefarmError, action: Action) -> None:
    """Release the step for another try after a pause, and add an event to the job; a continued wait adds one event only."""
    waits = action is Action.WAIT
    backoff_sec = _BACKOFF_SEC[min(step.attempts, len(_BACKOFF_SEC)) - 1]
    repos.steps.release(
        step.id,
        step.fence,
        delay_sec=_WAIT_SEC if waits else backoff_sec,
        count_attempt=not waits,
        fault=action is Action.RETRY_FAULT,
        error=error.to_json(),
    )
    was_told = waits and (step.error or {}).get("code") == error.code
    if step.job_id is not None and not was_told:
        repos.events.add(
            step.job_id,
            "retry",
            {"step": step.kind.value, "attempt": step.attempts, "error": error.to_json()},
        )


def _note_late_write(services: Services, step: Step, lost: TunefarmError) -> None:
    log.warning("late write rejected", reason=lost.message)
    with suppress(TransientError), services.uow.write() as repos:
        repos.counters.add(Counter.LATE_WRITES, {step.kind.value: 1.0}, of=step.subject_id)


def _hand_back(services: Services, step: Step) -> None:
    """Release the step for another worker at once. A worker that was told to stop does not count as a failed attempt."""
    with suppress(*_LOST):
        with services.uow.write() as repos:
            repos.steps.release(step.id, step.fence)
        log.info("step handed back")


def _pause_quietly(services: Services, step: Step) -> None:
    """Pause the step of a paused job, if it is still open; the job may have been resumed meanwhile."""
    with suppress(*_LOST), services.uow.write() as repos:
        repos.steps.lock_claimed(step.id, step.fence)
        if step.job_id is not None and repos.jobs.get(step.job_id, lock=True).state is JobState.PAUSED:
            repos.steps.pause_step(step.id)
        else:
            repos.steps.release(step.id, step.fence)


def _finish_quietly(services: Services, step: Step) -> None:
    """End the step of a cancelled job, if it is still open."""
    with suppress(*_LOST), services.uow.write() as repos:
        repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
