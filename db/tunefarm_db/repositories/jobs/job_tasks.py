"""The tuning tasks of a job, and their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from sqlalchemy import func, insert, not_, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import JobTaskRow, table_of
from tunefarm_db.values import JobTask, Json, ModelTask, TaskCounts
from tunefarm_tuning.core.errors import NotFoundError

_TASKS = table_of(JobTaskRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJobTask:
    """A task to be added to a job; the first is position 0."""

    workload_key: str
    toolchain: str
    weight: int
    name: str
    alternative: Json | None = None


class JobTaskChanges(TypedDict, total=False):
    """The columns of a job's task that a round changes. Columns that are left out stay as they are."""

    space_key: str | None
    trials: int
    failures: int
    best_cost_sec: float | None
    untuned_cost_sec: float | None
    spent_sec: float
    exhausted: bool
    rounds: int
    confirmations: int
    history: list[list[Any]]


class JobTasks(Repository):
    """The part of `Jobs` for tasks."""

    def add_tasks(self, job_id: str, tasks: Sequence[NewJobTask | ModelTask]) -> None:
        """Give the job its tasks, once.

        Raises:
            ConflictError: If it has tasks already.
        """
        names = [field.name for field in fields(NewJobTask)]
        rows = [
            {"job_id": job_id, "position": position, **{name: getattr(task, name) for name in names}}
            for position, task in enumerate(tasks)
        ]
        if rows:
            self._run(insert(_TASKS), rows)

    def tasks(self, job_id: str) -> tuple[JobTask, ...]:
        """Return the job's tasks by position."""
        return self._all(
            JobTask, select(_TASKS).where(JobTaskRow.job_id == job_id).order_by(JobTaskRow.position)
        )

    def newest_toolchain(self) -> str | None:
        """Return the toolchain of the kernels of the newest job that has any; None if there is none."""
        query = select(JobTaskRow.toolchain).order_by(JobTaskRow.job_id.desc(), JobTaskRow.position.desc())
        toolchain: str | None = self._run(query.limit(1)).scalar_one_or_none()
        return toolchain

    def count_tasks(self, job_ids: Sequence[str]) -> dict[str, TaskCounts]:
        """Return the numbers of each job's tasks; a job without tasks is left out."""
        is_other, is_measured = JobTaskRow.alternative.is_not(None), JobTaskRow.best_cost_sec.is_not(None)
        query = (
            select(
                JobTaskRow.job_id,
                func.count().filter(not_(is_other)),
                func.count().filter(not_(is_other), is_measured),
                func.count().filter(is_other),
                func.count().filter(is_other, is_measured),
            )
            .where(JobTaskRow.job_id.in_(list(job_ids)))
            .group_by(JobTaskRow.job_id)
        )
        return {
            job_id: TaskCounts(
                kernels=kernels,
                kernels_measured=measured,
                alternatives=others,
                alternatives_measured=others_measured,
            )
            for job_id, kernels, measured, others, others_measured in self._run(query)
        }

    def update_task(self, job_id: str, position: int, **changes: Unpack[JobTaskChanges]) -> JobTask:
        """Set columns of one task.

        Raises:
            NotFoundError: If the job has no such task.
        """
        where = (JobTaskRow.job_id == job_id, JobTaskRow.position == position)
        statement = update(_TASKS).where(*where).values({**changes}).returning(_TASKS)
        missing = NotFoundError(
            "the job has no such task", code="task-not-found", job_id=job_id, position=position
        )
        return self._required(JobTask, statement if changes else select(_TASKS).where(*where), missing)
