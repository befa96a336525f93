"""Changing a job that runs."""

from __future__ import annotations

import structlog

from tunefarm_app.composition import Services
from tunefarm_app.priority import parse_priority
from tunefarm_db.values import Job

log = structlog.stdlib.get_logger(__name__)


def change_job(services: Services, job_id: str, *, priority: int | str | None = None) -> Job:
    """Change what is named of a job that has not ended; the rest stays.

    Args:
        services: The process's services.
        job_id: The job.
        priority: A number or a name; it counts from the next round on, of this job and of others.

    Raises:
        NotFoundError: ``job-not-found``.
        ConflictError: ``job-state`` if it has ended.
        InvalidInputError: ``invalid-priority``.
    """
    wanted = None if priority is None else parse_priority(priority)
    with services.uow.write() as repos:
        job = repos.jobs.get(job_id, lock=True)
        if wanted is not None and wanted != job.priority:
            repos.events.add(job_id, "priority", {"before": job.priority, "priority": wanted})
            repos.jobs.update(job_id, priority=wanted)
            repos.jobs.catch_up(job_id)
        job = repos.jobs.update(job_id)
    log.info("job changed", job_id=job_id, priority=job.priority)
    return job
