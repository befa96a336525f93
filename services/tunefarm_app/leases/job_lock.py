"""Lock a job, so that no other process ends it or plans its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Step
from tunefarm_tuning.core.errors import TransientError

_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJob:
    """A locked job, its locked open steps (if requested), and the transaction that holds the locks."""

    repos: Repositories
    job: Job
    steps: tuple[Step, ...]


@contextmanager
def locked_job(services: Services, job_id: str, *, with_steps: Callable[[Job], bool]) -> Iterator[LockedJob]:
    """Open a transaction that locks the job's row. It locks the rows of the open steps first, as workers do.

    Args:
        services: The farm.
        job_id: The job.
        with_steps: Whether to lock the steps. In a job with several tracks some step is always about to end: its steps
            cannot be locked all at once.

    Raises:
        NotFoundError: ``job-not-found``.
        TransientError: ``busy`` if steps end, and others are planned, faster than they can be locked.
    """
    for _ in range(_TRIES):
        with services.uow.write() as repos:
            steps = repos.steps.lock_open(job_id) if with_steps(repos.jobs.get(job_id)) else ()
            job = repos.jobs.get(job_id, lock=True)
            if not with_steps(job) or repos.steps.open_ids(job_id) == {step.id for step in steps}:
                yield LockedJob(repos=repos, job=job, steps=steps)
                return
        # A worker planned a step in between.
    raise TransientError("the job's steps change too fast: try again", code="busy")
