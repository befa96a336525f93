"""Turns: the order in which jobs get the devices of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, func, or_, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.job import TURN_STATES
from tunefarm_db.tables import JobRow, StepRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, Step, StepKind, StepState

_JOBS = table_of(JobRow)
_STEPS = table_of(StepRow)

MEASUREMENT_WAITS_SEC = 10.0
"""How long jobs wait for a measurement that is due. If no worker takes it by then, they use the devices meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How many waiting jobs come before a job: those of a higher priority, and all."""

    higher: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """How many other jobs use devices of the same pool: of a higher priority, and of the same priority."""

    higher: int
    equal: int


class Turns(Repository):
    """A job with a higher `priority` comes first; among equals, the one with the least `turn_sec`; then the older one.

    A step waits for a device if it is ready, due or not: a transaction that frees a device makes it due. One that went wrong is
    left to its back-off.
    """

    def next_of(self, device_key: str, devices: int = 1) -> tuple[Step, ...]:
        """Return the next steps to get a device of this pool, in order."""
        query = select(_STEPS).join(_JOBS, JobRow.id == StepRow.job_id).where(_waits(device_key))
        order = (JobRow.priority.desc(), JobRow.turn_sec, JobRow.id, StepRow.not_before, StepRow.id)
        return self._all(Step, query.order_by(*order).limit(devices))

    def ahead_of(self, job_id: str, device_key: str) -> Ahead:
        """Return how many waiting steps of other jobs come before the job's steps in this pool."""
        job = select(JobRow.priority, JobRow.turn_sec).where(JobRow.id == job_id).subquery()
        higher = JobRow.priority > job.c.priority
        sooner = or_(
            JobRow.turn_sec < job.c.turn_sec, and_(JobRow.turn_sec == job.c.turn_sec, JobRow.id < job_id)
        )
        query = (
            select(func.coalesce(func.sum(case((higher, 1), else_=0)), 0), func.count())
            .select_from(_STEPS.join(_JOBS, JobRow.id == StepRow.job_id), job)
            .where(
                _waits(device_key),
                JobRow.id != job_id,
                or_(higher, and_(JobRow.priority == job.c.priority, sooner)),
            )
        )
        row = self._run(query).one()
        return Ahead(higher=int(row[0]), total=int(row[1]))

    def waiting(self, device_key: str) -> int:
        """Return how many steps wait for a device of this pool."""
        query = select(func.count()).select_from(_STEPS.join(_JOBS, JobRow.id == StepRow.job_id))
        return int(self._run(query.where(_waits(device_key))).scalar_one())

    def measurements(self, device_key: str) -> tuple[Step, ...]:
        """Return the steps that wait to measure an artifact on a device of this pool, oldest first: they come before all jobs.

        One that is due for longer than `MEASUREMENT_WAITS_SEC` waits for a worker, not for a device: it is left out.
        """
        query = (
            select(_STEPS)
            .join(_JOBS, JobRow.id == StepRow.subject_id)
            .where(
                StepRow.kind == StepKind.MEASURE,
                StepRow.state == StepState.READY,
                or_(StepRow.error.is_(None), StepRow.not_before <= db_now()),
                StepRow.not_before > db_now() - MEASUREMENT_WAITS_SEC,
                JobRow.device_key == device_key,
            )
        )
        return self._all(Step, query.order_by(StepRow.id))

    def rivals(self, job: Job) -> Rivals:
        """Return the number of jobs that share the job's pool."""
        higher = JobRow.priority > job.priority
        query = select(
            func.coalesce(func.sum(case((higher, 1), else_=0)), 0),
            func.coalesce(func.sum(case((JobRow.priority == job.priority, 1), else_=0)), 0),
        ).where(
            JobRow.device_key == job.device_key, JobRow.id != job.id, JobRow.state.in_(sorted(TURN_STATES))
        )
        row = self._run(query).one()
        return Rivals(higher=int(row[0]), equal=int(row[1]))


def _waits(device_key: str) -> ColumnElement[bool]:
    return and_(
        StepRow.state == StepState.READY,
        or_(StepRow.error.is_(None), StepRow.not_before <= db_now()),
        StepRow.kind.in_([kind for kind in StepKind if kind.needs_device]),
        JobRow.device_key == device_key,
    )
