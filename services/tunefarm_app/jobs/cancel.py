"""Cancelling a job."""

from __future__ import annotations

import structlog

from tunefarm_app.jobs.phases import cancel
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job

log = structlog.stdlib.get_logger(__name__)


def cancel_job(services: Services, job_id: str) -> Job:
    """Stop the job; what it has measured so far stays. Cancelling a finished job changes nothing.

    Raises:
        NotFoundError: ``job-not-found``.
    """
    with services.uow.write() as repos:
        repos.jobs.get(job_id)
        job = cancel(repos, job_id)
    if job.state is JobState.CANCELLED:
        with services.uow.write() as repos:
            # What a worker planned in the very moment. Its transaction has ended, or sees the job cancelled.
            repos.steps.cancel_open(job_id=job_id)
    log.info("job cancelled", job_id=job.id, state=job.state.value)
    return job
