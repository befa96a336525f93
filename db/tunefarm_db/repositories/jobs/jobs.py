"""Tuning jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, Unpack

from sqlalchemy import func, select, update

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import equal
from tunefarm_db.repositories.jobs.job_tasks import JobTasks
from tunefarm_db.repositories.selection import (
    JOBS_AND_MODELS,
    ORDERS,
    JobFilters,
    JobOrder,
    conditions,
)
from tunefarm_db.states.job import OPEN_STATES, TURN_STATES, JobState, sources
from tunefarm_db.tables import JobRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, Json, Page
from tunefarm_tuning.core.errors import ConflictError, NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_JOBS = table_of(JobRow)


def job_not_found(job_id: str) -> NotFoundError:
    """Return the error that names a job that is not there."""
    return NotFoundError(f"there is no such job: {clean(job_id, 60)}", code="job-not-found", job_id=job_id)


class JobChanges(TypedDict, total=False):
    """The columns of a job that its work changes. Columns that are left out stay as they are."""

    error: Json | None
    started_tuning_at: float | None
    tuned_sec: float
    counted_until: float | None
    trials: int
    failures: int
    trials_since_improvement: int
    best_latency_sec: float | None
    stop_reason: str | None
    priority: int
    budget: Json
    options: Json
    progress: Json
    artifact_id: str | None


class JobNumbers(TypedDict):
    """What lists show of a job's artifact; see `Job`."""

    network_latency_sec: float | None
    speedups: Json
    over_untuned: float | None
    over_runtime: float | None


class NewJob(TypedDict):
    """The columns of a new job."""

    model_id: str
    target: Json
    target_key: str
    device_key: str
    tuner: str
    seed: int
    budget: Json
    options: NotRequired[Json]
    priority: NotRequired[int]
    idempotency_key: NotRequired[str | None]
    request_digest: NotRequired[str | None]
    tags: NotRequired[Sequence[str]]
    note: NotRequired[str]


class Jobs(JobTasks):
    """Jobs, their terms, states and tasks."""

    def add(self, **columns: Unpack[NewJob]) -> Job:
        """Add a job in state queued.

        Raises:
            ConflictError: If the idempotency key is taken (look with `find_by_idempotency_key` first; this is
                what remains of a race).
        """
        own = {"id": new_id("job"), "state": JobState.QUEUED, "owner": acting().owner}
        values = {**own, "options": {}, "progress": {}, **columns}
        return self._add(Job, _JOBS, values)

    def get(self, job_id: str, *, lock: bool = False) -> Job:
        """Return a job; with `lock`, lock its row until the end of the unit of work (SQLite has locked the database anyway).

        Raises:
            NotFoundError: ``job-not-found``.
        """
        query = select(_JOBS).where(JobRow.id == job_id)
        return self._required(Job, query.with_for_update() if lock else query, job_not_found(job_id))

    def find_by_idempotency_key(self, key: str) -> Job | None:
        return self._first(Job, select(_JOBS).where(JobRow.idempotency_key == key))

    def list(
        self,
        *,
        order: JobOrder = JobOrder.NEWEST,
        cursor: str | None = None,
        limit: int = 50,
        **filters: Unpack[JobFilters],
    ) -> Page[Job]:
        """Return the jobs that pass the filters, in an order; the cursor is the id of the page's last job."""
        query = select(_JOBS).select_from(JOBS_AND_MODELS).where(*conditions(filters))
        return self._sorted_page(Job, query, ORDERS[order], cursor=cursor, limit=limit)

    def open(self, *, model_id: str | None = None, cancel_requested: bool | None = None) -> tuple[Job, ...]:
        """Return the jobs that are not finished, oldest first."""
        wanted = equal(_JOBS.c, model_id=model_id, cancel_requested=cancel_requested)
        query = select(_JOBS).where(JobRow.state.in_(sorted(OPEN_STATES)), *wanted)
        return self._all(Job, query.order_by(JobRow.id))

    def move(
        self, job_id: str, to: JobState, *, expected: JobState | None = None, **changes: Unpack[JobChanges]
    ) -> Job:
        """Move the job to another state if the table in `tunefarm_db.states.job` allows it, in one UPDATE.

        Args:
            job_id: The job.
            to: The next state. A final one sets `finished_at`, any other clears it.
            expected: Move only from this state, where the table allows several.
            changes: Columns to set along with it.

        Raises:
            ConflictError: ``job-state`` if the job's state does not allow it.
            NotFoundError: If there is no such job.
        """
        allowed = sources(to) if expected is None else sources(to) & {expected}
        ended = db_now() if to.is_finished else None
        values: dict[str, Any] = {"state": to, "finished_at": ended, **changes}
        statement = update(_JOBS).where(JobRow.id == job_id, JobRow.state.in_(sorted(allowed)))
        job = self._first(Job, statement.values(values).returning(_JOBS))
        if job is None:
            present = self.get(job_id).state
            raise ConflictError(
                f"the job {present.clause}, so it cannot become {to}", code="job-state", state=present.value
            )
        return job

    def update(self, job_id: str, **changes: Unpack[JobChanges]) -> Job:
        """Set columns of a job that is not finished.

        Raises:
            ConflictError: ``job-state`` if it is finished.
            NotFoundError: If there is no such job.
        """
        statement = update(_JOBS).where(JobRow.id == job_id, JobRow.state.in_(sorted(OPEN_STATES)))
        job = (
            self._first(Job, statement.values({**changes}).returning(_JOBS)) if changes else self.get(job_id)
        )
        if job is None:
            present = self.get(job_id).state
            raise ConflictError(f"the job {present.clause} already", code="job-state", state=present.value)
        return job

    def label(self, job_id: str, *, tags: Sequence[str] | None = None, note: str | None = None) -> Job:
        """Set the tags or the note of a job in any state; None leaves them.

        Raises:
            NotFoundError: If there is no such job.
        """
        # The time of the last change stays: nothing that the job does has changed.
        values: dict[str, Any] = {"updated_at": JobRow.updated_at}
        values |= {"tags": list(tags)} if tags is not None else {}
        values |= {"note": note} if note is not None else {}
        self._run(update(_JOBS).where(JobRow.id == job_id).values(**values))
        return self.get(job_id)

    def set_numbers(self, job_id: str, **numbers: Unpack[JobNumbers]) -> None:
        """Set what lists show and sort by of a job's artifact."""
        self._run(update(_JOBS).where(JobRow.id == job_id).values(**numbers))

    def set_best_latency(self, job_id: str, best_latency_sec: float | None) -> None:
        """Set the sum of the tasks' best costs after these changed, whatever the job's state."""
        self._run(update(_JOBS).where(JobRow.id == job_id).values(best_latency_sec=best_latency_sec))

    def charge(self, job_id: str, device_sec: float) -> None:
        """Add the job's use of a device to its `turn_sec`."""
        self._run(
            update(_JOBS).where(JobRow.id == job_id).values(turn_sec=JobRow.turn_sec + max(device_sec, 0.0))
        )

    def catch_up(self, job_id: str) -> None:
        """Raise the `turn_sec` of a new or resumed job to the minimum among the jobs that it takes turns with.

        Otherwise it would have the devices to itself until it had caught up with all that the others ever had.
        """
        job = self.get(job_id)
        least = self._run(
            select(func.min(JobRow.turn_sec)).where(
                JobRow.id != job_id,
                JobRow.device_key == job.device_key,
                JobRow.priority == job.priority,
                JobRow.state.in_(sorted(TURN_STATES)),
            )
        ).scalar_one_or_none()
        if least is not None and least > job.turn_sec:
            self._run(update(_JOBS).where(JobRow.id == job_id).values(turn_sec=least))

    def request_cancel(self, job_id: str) -> Job:
        """Store that the user wants the job to stop; a finished job stays as it is.

        Raises:
            NotFoundError: If there is no such job.
        """
        self._run(
            update(_JOBS)
            .where(JobRow.id == job_id, JobRow.state.in_(sorted(OPEN_STATES)))
            .values(cancel_requested=True)
        )
        return self.get(job_id)
