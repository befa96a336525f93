"""Cancel, finish, pause, resume and retry jobs."""

from __future__ import annotations

import structlog

from tunefarm_app.access.quotas import check_job, check_own
from tunefarm_app.jobs.transitions import begin_compiling, cancel
from tunefarm_app.leases.device_turns import without_wait
from tunefarm_app.leases.job_lock import locked_job
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import searches
from tunefarm_db.states.job import JobState
from tunefarm_db.values import AuditAction, Job, Json, Step, StepKind
from tunefarm_tuning.core.errors import ConflictError

log = structlog.stdlib.get_logger(__name__)

FINISHED = "finished"
"""Why the search of a job ended that somebody finished."""

_STATE_OF_STEP: dict[StepKind, JobState] = {
    StepKind.EXTRACT: JobState.QUEUED,
    StepKind.TUNE: JobState.TUNING,
    StepKind.CONFIRM: JobState.TUNING,
    StepKind.COMPILE: JobState.COMPILING,
}
"""The state of a job whose open step has this kind."""


def cancel_job(services: Services, job_id: str) -> Job:
    """Cancel the job; its measurements stay. Of a finished job, an open measurement of its artifact is cancelled.

    Raises:
        NotFoundError: ``job-not-found``.
    """
    with services.uow.write() as repos:
        repos.jobs.get(job_id)
        job, is_cancelled_now = cancel(repos, job_id)
        if is_cancelled_now:
            repos.audit.note(AuditAction.JOB_CANCELLED, job_id)
    if job.state is JobState.CANCELLED:
        with services.uow.write() as repos:
            # Steps that a worker planned meanwhile: its transaction has ended, or it sees that the job is cancelled.
            repos.steps.cancel_open(job_id=job_id)
    log.info("job cancelled", job_id=job.id, state=job.state.value)
    return job


def finish_job(services: Services, job_id: str) -> Job:
    """End the job's search now, and compile the best so far. Its running round is dropped; a paused job is resumed.

    A job that compiles or has ended stays as it is.

    Raises:
        NotFoundError: ``job-not-found``.
        TransientError: ``busy`` if its rounds change too fast.
    """
    following: Step | None = None
    resume_paused_job = False
    changes = False
    with locked_job(services, job_id, with_steps=_is_searching) as held:
        repos, job = held.repos, held.job
        reason = job.stop_reason or FINISHED
        if _is_searching(job):
            repos.steps.cancel_open(job_id=job_id)
            following = begin_compiling(repos, job, stop_reason=reason)
            repos.steps.mark_sent([following.id])
            changes = True
        elif job.state in (JobState.QUEUED, JobState.EXTRACTING, JobState.PAUSED):
            # Its tasks are not known yet, so its extract step sees to the rest; or the compile is paused.
            repos.jobs.update(job_id, stop_reason=reason)
            resume_paused_job = _is_paused(job)
            changes = resume_paused_job or job.stop_reason is None
        if changes:
            repos.audit.note(AuditAction.JOB_FINISHED, job_id)
        job = repos.jobs.get(job_id)
    if resume_paused_job:
        job = resume_job(services, job_id)
    if following is not None:
        services.dispatcher.send(following.id, following.kind)
    log.info("job finished early", job_id=job_id, state=job.state.value)
    return job


def pause_job(services: Services, job_id: str) -> Job:
    """Pause the job until it is resumed. Its running step ends within two seconds and is repeated after the pause.

    Committed measurements stay; the running step's are dropped and not counted against the budget. Pausing a
    paused job changes nothing.

    Raises:
        NotFoundError: ``job-not-found``.
        ConflictError: ``job-state`` if it has ended.
    """
    with services.uow.write() as repos:
        repos.jobs.get(job_id)
        repos.steps.pause(job_id)  # before the job's row: workers lock in this order, too
        job = repos.jobs.get(job_id, lock=True)
        if job.state is JobState.PAUSED:
            return job
        if job.state.is_finished:
            raise ConflictError(
                f"the job {job.state.clause}: it cannot be paused", code="job-state", state=job.state.value
            )
        progress: Json = {**without_wait(job.progress), "phase": "paused", "paused_in": job.state.value}
        job = repos.jobs.move(job_id, JobState.PAUSED, progress=progress)
        repos.events.add(job_id, "paused", {"state": progress["paused_in"]})
        repos.audit.note(AuditAction.JOB_PAUSED, job_id)
    with locked_job(services, job_id, with_steps=_is_paused) as held:
        # Steps that a worker planned between the first two statements, unless the job was resumed meanwhile.
        if _is_paused(held.job):
            held.repos.steps.pause(job_id)
    log.info("job paused", job_id=job_id, state=progress["paused_in"])
    return job


def resume_job(services: Services, job_id: str) -> Job:
    """Resume a paused job with the step in which it was paused; other unfinished jobs stay as they are.

    Raises:
        NotFoundError: ``job-not-found``.
        ConflictError: ``job-state`` if it has ended.
    """
    with locked_job(services, job_id, with_steps=_is_paused) as held:
        repos, job = held.repos, held.job
        if not _is_paused(job):
            if job.state.is_finished:
                raise ConflictError(
                    f"the job {job.state.clause}: it cannot be resumed",
                    code="job-state",
                    state=job.state.value,
                )
            return job
        job = repos.jobs.move(
            job_id, _state_of(held.steps), expected=JobState.PAUSED, progress=_progress(job, held.steps)
        )
        steps = repos.steps.resume(job_id)
        repos.jobs.catch_up(job_id)
        repos.events.add(job_id, "resumed", {"state": job.state.value})
        repos.audit.note(AuditAction.JOB_RESUMED, job_id)
    log.info("job resumed", job_id=job_id, state=job.state.value)
    for step in steps:
        services.dispatcher.send(step.id, step.kind)
    return job


def retry_job(services: Services, job_id: str) -> Job:
    """Retry a failed job from the step that failed. Completed work is kept.

    An unfinished job stays as it is.

    Raises:
        NotFoundError: ``job-not-found``, ``model-deleted``.
        ConflictError: ``job-state`` if it succeeded or was cancelled.
        QuotaError: As for a new job; ``quota-own-jobs`` for somebody else's.
    """
    with services.uow.write() as repos:
        job = repos.jobs.get(job_id)
        failed = repos.steps.newest_failed(job_id)
        # Before the job's row: workers lock in this order, too.
        step = repos.steps.reopen(failed.id) if failed and job.state is JobState.FAILED else None
        job = repos.jobs.get(job_id, lock=True)
        if not job.state.is_finished:
            if step is not None:  # another request was faster; roll back
                raise ConflictError(
                    "the job is being retried already", code="job-state", state=job.state.value
                )
            return job
        if job.state is not JobState.FAILED or step is None:
            raise ConflictError(
                f"the job {job.state.clause}: only a failed job can be retried",
                code="job-state",
                state=job.state.value,
            )
        repos.models.get(job.model_id)
        check_own(repos, job)
        check_job(
            repos,
            priority=job.priority,
            budget=job.budget if searches(job) else None,
            spent_sec=job.tuned_sec,
        )
        state = _STATE_OF_STEP[step.kind]
        job = repos.jobs.move(
            job_id, state, expected=JobState.FAILED, error=None, progress={"phase": state.value}
        )
        repos.jobs.catch_up(job_id)
        repos.events.add(job_id, "retried", {"state": state.value, "step": step.kind.value})
        repos.audit.note(AuditAction.JOB_RETRIED, job_id)
    log.info("job retried", job_id=job_id, state=job.state.value, step=step.kind.value)
    services.dispatcher.send(step.id, step.kind)
    return job


def _is_searching(job: Job) -> bool:
    return JobState.TUNING in (job.state, job.progress.get("paused_in"))


def _is_paused(job: Job) -> bool:
    return job.state is JobState.PAUSED


def _state_of(steps: tuple[Step, ...]) -> JobState:
    return _STATE_OF_STEP[steps[0].kind]  # the open steps of a job all have one kind


def _progress(job: Job, steps: tuple[Step, ...]) -> Json:
    progress = {name: value for name, value in job.progress.items() if name != "paused_in"}
    confirming = steps[0].kind is StepKind.CONFIRM
    return {**progress, "phase": "confirming" if confirming else _state_of(steps).value}
