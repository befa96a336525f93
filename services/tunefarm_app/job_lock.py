"""Holding a job still, all of it: nobody begins, ends or plans a step of it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tunefarm_app.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Step
from tunefarm_tuning.errors import TransientError

_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJob:
    """A job, its open steps, and the transaction in which they are locked."""

    repos: Repositories
    job: Job
    steps: tuple[Step, ...]


@contextmanager
def locked_job(services: Services, job_id: str) -> Iterator[LockedJob]:
    """Open a transaction in which the rows of the job's open steps and of the job are locked, in this order, as workers do.

    Raises:
        NotFoundError: ``job-not-found``.
        TransientError: ``busy`` if steps end, and others are planned, faster than they can be locked.
    """
    for _ in range(_TRIES):
        with services.uow.write() as repos:
            repos.jobs.get(job_id)
            steps = repos.steps.lock_open(job_id)
            job = repos.jobs.get(job_id, lock=True)
            if repos.steps.open_ids(job_id) == {one.id for one in steps}:
                yield LockedJob(repos=repos, job=job, steps=steps)
                return
        # A worker planned a step in between.
    raise TransientError("the job goes from step to step too fast: try again", code="busy")
