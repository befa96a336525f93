"""Running a step: claim, work, commit under the fence, then ring for what follows.

What happens to a step that goes wrong is decided here alone:

- the input is wrong: the job (or model, or source) fails with that error, at once; a job whose winners were to be confirmed is
  compiled without that;
- the device or something else outside was away: again after a pause, `max_losses` times in all;
- we have a bug, or it took too long: again after a pause, until that was so `max_attempts` times;
- a disk is full, the worker's or the store's: again after a pause, for as long as it takes somebody to make room;
- the lease was lost, or the job cancelled: nothing is written, whoever took it over has the say;
- the job was paused: nothing is written, the step waits for it to be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress

import structlog

from tunefarm_app.jobs.phases import fail_subject
from tunefarm_app.leases.step_context import PrefetchSlot, StepContext
from tunefarm_app.leases.step_lease import TOO_LONG, JobPausedError, StepLease, WorkerStoppingError
from tunefarm_app.models.removal import remove_unreferenced
from tunefarm_app.runtime.composition import Services
from tunefarm_app.runtime.full_disk import as_full_disk, is_full_disk
from tunefarm_app.runtime.logs import OF_A_STEP
from tunefarm_app.runtime.step_limits import deadline_sec
from tunefarm_app.steps.compile_step import run_compile
from tunefarm_app.steps.extract_step import run_extract
from tunefarm_app.steps.import_step import run_import
from tunefarm_app.steps.source_step import run_source
from tunefarm_app.tuning.commit import run_tune
from tunefarm_app.tuning.confirm_step import run_confirm
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Step, StepKind, StepState
from tunefarm_tuning.core.errors import (
    CancelledError,
    ConflictError,
    DeviceLostError,
    InvalidInputError,
    InvariantError,
    LeaseLostError,
    NotFoundError,
    TransientError,
    TunefarmError,
)
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.state import BUSY

log = structlog.stdlib.get_logger(__name__)

_HANDLERS: dict[StepKind, Callable[[StepContext], None]] = {
    StepKind.IMPORT: run_import,
    StepKind.EXTRACT: run_extract,
    StepKind.TUNE: run_tune,
    StepKind.CONFIRM: run_confirm,
    StepKind.COMPILE: run_compile,
    StepKind.SOURCE: run_source,
}
_BACKOFF_SEC = (2.0, 10.0, 30.0)
_WAIT_SEC = 10.0


def run_steps(step_id: str, services: Services) -> None:
    """Run the step, and the job's next rounds while the turn lasts; send whatever else follows.

    Going on in the same process saves a trip through the broker per round, and this process's compilers are warm.
    A round is sent, and not begun here, when another job waits for the device, or the turn is over.
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
    """Return whether a tuning step planned this one: then this worker serves its queue."""
    return step.kind is StepKind.CONFIRM or (step.kind is StepKind.TUNE and step.round > 0)


def _may_go_on(services: Services, spent_sec: float) -> bool:
    settings = services.settings
    if spent_sec >= settings.step_chain_sec or services.draining():
        return False
    return spent_sec < settings.step_turn_sec or not any(
        services.dispatcher.queue_length(kind) for kind in (StepKind.IMPORT, StepKind.TUNE, StepKind.COMPILE)
    )


def run_step(step_id: str, services: Services, prefetch: PrefetchSlot | None = None) -> list[Step]:
    """Run one step, if it is to be had; return the steps to start next, in order. Never raises for the step's own sake.

    Args:
        step_id: Which.
        services: What to run it with.
        prefetch: Holds what a step prepares for the next one.

    Raises:
        TransientError: If the database is away; the step's lease runs out then.
    """
    settings = services.settings
    with services.uow.write() as repos:
        step = repos.steps.claim(
            step_id, services.owner, settings.lease_sec, max_attempts=settings.max_losses
        )
        job = None if step is None or step.job_id is None else repos.jobs.get(step.job_id)
        if step is not None and job is not None:
            # Planned in the very moment the job was cancelled, or paused.
            if job.state is JobState.PAUSED:
                job = repos.jobs.get(job.id, lock=True)  # or is it being resumed?
            if job.state.is_finished:
                repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
                step = None
            elif job.state is JobState.PAUSED:
                repos.steps.pause_step(step.id)
                step = None
    if step is None:
        log.debug("step not to be had", step_id=step_id)
        return []
    with structlog.contextvars.bound_contextvars(
        step_id=step.id, job_id=step.job_id, model_id=step.model_id, step=step.kind.value, round=step.round
    ):
        try:
            return _run(step, services, prefetch)
        finally:
            structlog.contextvars.unbind_contextvars(*OF_A_STEP)


def _run(step: Step, services: Services, prefetch: PrefetchSlot | None) -> list[Step]:
    started = time.monotonic()
    with StepLease(services, step, limit_sec=deadline_sec(services.settings, step.kind)) as lease:
        context = StepContext(services=services, step=step, lease=lease, prefetch=prefetch)
        try:
            _HANDLERS[step.kind](context)
            log.info("step done", attempt=step.attempts, seconds=round(time.monotonic() - started, 3))
            return context.following
        except Exception as error:  # noqa: BLE001  (`_settle` decides about each kind)
            if isinstance(error, DeviceLostError) and lease.reason is None:
                lease.doubt_device(error.message)
            # Children that were closed under the work fail in many ways; the wish to stop says more.
            _settle(services, step, lease.reason or error)
    return []


def _settle(services: Services, step: Step, error: Exception) -> None:
    if isinstance(error, CancelledError):
        log.info("step cancelled")
        _finish_quietly(services, step)
        return
    if isinstance(error, JobPausedError):
        log.info("step paused")
        _pause_quietly(services, step)
        return
    if isinstance(error, LeaseLostError):
        _note_late_write(services, step, error)
        return
    if isinstance(error, WorkerStoppingError):
        _hand_back(services, step)
        return
    known = error if isinstance(error, TunefarmError) else as_full_disk(error)
    if known is None or isinstance(known, InvariantError):
        log.error("step broke", exc_info=error, attempt=step.attempts)
    else:
        log.warning("step failed", code=known.code, error=known.message, attempt=step.attempts)
    # The stack stays in the log: what users see has no lines of ours in it.
    shown = known or InvariantError(
        f"the {step.kind} step broke: {type(error).__name__}: {clean(str(error), 200)}"
    )
    settings = services.settings
    final = isinstance(shown, InvalidInputError | NotFoundError | ConflictError)
    waits = is_full_disk(shown) or shown.code == BUSY
    fault = not isinstance(shown, TransientError) or shown.code == TOO_LONG
    tries, most = (step.faults + 1, settings.max_attempts) if fault else (step.attempts, settings.max_losses)
    failed = final or (tries >= most and not waits)
    try:
        with services.uow.write() as repos:
            if failed:
                repos.steps.finish(step.id, step.fence, state=StepState.FAILED, error=shown.to_json())
                fail_subject(repos, step, shown.to_json(), final=final)
            else:
                backoff_sec = _BACKOFF_SEC[min(step.attempts, len(_BACKOFF_SEC)) - 1]
                repos.steps.release(
                    step.id,
                    step.fence,
                    delay_sec=_WAIT_SEC if waits else backoff_sec,
                    count_attempt=not waits,
                    fault=fault,
                    error=shown.to_json(),
                )
                told = waits and (step.error or {}).get("code") == shown.code
                if step.job_id is not None and not told:
                    repos.events.add(
                        step.job_id,
                        "retry",
                        {"step": step.kind.value, "attempt": step.attempts, "error": shown.to_json()},
                    )
        if failed and step.kind is StepKind.IMPORT:
            with services.uow.read() as repos:
                useless = repos.models.get(step.model_id, deleted=True).sha256
            remove_unreferenced(services, useless)
    except LeaseLostError as lost:
        _note_late_write(services, step, lost)
    except TransientError as away:
        log.warning("step not handed back; its lease runs out", error=away.message)


def _note_late_write(services: Services, step: Step, lost: LeaseLostError) -> None:
    log.warning("late write rejected", reason=lost.message)
    with suppress(TransientError), services.uow.write() as repos:
        repos.counters.add(Counter.LATE_WRITES, {step.kind.value: 1.0}, of=step.subject_id)


def _hand_back(services: Services, step: Step) -> None:
    """Let another worker have the step at once; that this one was told to stop is no failed attempt."""
    try:
        with services.uow.write() as repos:
            repos.steps.release(step.id, step.fence)
        log.info("step handed back")
    except (LeaseLostError, TransientError):
        pass  # its lease runs out


def _pause_quietly(services: Services, step: Step) -> None:
    """Let a step wait whose job is paused, should it still be open; the job may have been resumed meanwhile."""
    try:
        with services.uow.write() as repos:
            repos.steps.hold(step.id, step.fence)
            if step.job_id is not None and repos.jobs.get(step.job_id, lock=True).state is JobState.PAUSED:
                repos.steps.pause_step(step.id)
            else:
                repos.steps.release(step.id, step.fence)
    except (LeaseLostError, TransientError):
        pass


def _finish_quietly(services: Services, step: Step) -> None:
    """End a step whose job was cancelled, should it still be open."""
    try:
        with services.uow.write() as repos:
            repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
    except (LeaseLostError, TransientError):
        pass
