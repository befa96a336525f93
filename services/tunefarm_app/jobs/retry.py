"""Retrying a job that failed."""

from __future__ import annotations

import structlog

from tunefarm_app.jobs.pause import STATE_OF_STEP
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import ConflictError

log = structlog.stdlib.get_logger(__name__)


def retry_job(services: Services, job_id: str) -> Job:
    """Let a failed job go on with the step that failed. What was done is kept, and not done again.

    A job that goes on anyway stays as it is.

    Raises:
        NotFoundError: ``job-not-found``, ``model-deleted``.
        ConflictError: ``job-state`` if it succeeded or was cancelled.
    """
    with services.uow.write() as repos:
        job = repos.jobs.get(job_id)
        failed = repos.steps.newest_failed(job_id)
        # Before the job's row: workers lock in this order too.
        step = repos.steps.reopen(failed.id) if failed and job.state is JobState.FAILED else None
        job = repos.jobs.get(job_id, lock=True)
        if not job.state.is_finished:
            if step is not None:  # somebody else was faster; nothing of this is kept
                raise ConflictError(
                    "the job is being retried already", code="job-state", state=job.state.value
                )
            return job
        if job.state is not JobState.FAILED or step is None:
            raise ConflictError(
                f"the job is {job.state}: only a failed one can be retried",
                code="job-state",
                state=job.state.value,
            )
        repos.models.get(job.model_id)
        state = STATE_OF_STEP[step.kind]
        job = repos.jobs.move(
            job_id, state, expected=JobState.FAILED, error=None, progress={"phase": state.value}
        )
        repos.jobs.catch_up(job_id)
        repos.events.add(job_id, "retried", {"state": state.value, "step": step.kind.value})
    log.info("job retried", job_id=job_id, state=job.state.value, step=step.kind.value)
    services.dispatcher.send(step.id, step.kind)
    return job
