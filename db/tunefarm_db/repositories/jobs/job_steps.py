"""Queries of a job's steps, and their changes when the job is paused, resumed or retried."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import StepRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, Step, StepKind, StepState

_STEPS = table_of(StepRow)
NOT_LEASED: dict[str, None] = {"lease_owner": None, "lease_until": None, "in_flight": None}
"""The values of an UPDATE that ends a step's lease."""

OPEN = (StepState.READY, StepState.LEASED, StepState.PAUSED)


class JobSteps(Repository):
    """Part of `Steps`.

    Concurrency: workers lock a step's row before its job's; a transaction that needs both locks in that order, and locks several
        steps in the order of their ids. Where the job's row is locked already, or steps of another job are, rows that
        somebody has locked are passed over: to wait for them could be to wait for each other.
    """

    def open_of(self, job_ids: Sequence[str]) -> dict[str, Step]:
        """Return an open step of each job; jobs without one are left out.

        Of several open steps, one that a worker holds comes first.
        """
        query = select(_STEPS).where(StepRow.job_id.in_(list(job_ids)), StepRow.state.in_(OPEN))
        query = query.order_by(StepRow.state == StepState.LEASED, StepRow.id.desc())  # the last one stays
        return {step.job_id: step for step in self._all(Step, query) if step.job_id is not None}

    def ready_before(self, step: Step) -> int:
        """Return how many steps of this kind were planned earlier and wait for a worker."""
        query = select(func.count()).where(
            StepRow.kind == step.kind, StepRow.state == StepState.READY, StepRow.id < step.id
        )
        return int(self._run(query).scalar_one())

    def kinds_and_jobs(self, step_ids: Collection[str]) -> dict[str, tuple[StepKind, str | None]]:
        """Return kind and job of each of these steps; deleted steps are left out."""
        query = select(StepRow.id, StepRow.kind, StepRow.job_id).where(StepRow.id.in_(sorted(step_ids)))
        return {row[0]: (row[1], row[2]) for row in self._run(query)}

    def open_ids(self, job_id: str) -> frozenset[str]:
        """Return the ids of all steps of the job that are not finished."""
        query = select(StepRow.id).where(StepRow.job_id == job_id, StepRow.state.in_(OPEN))
        return frozenset(self._run(query).scalars())

    def at_work(self, job_id: str) -> bool:
        """Return whether a worker holds a step of the job."""
        query = select(StepRow.id).where(StepRow.job_id == job_id, StepRow.state == StepState.LEASED)
        return self._run(query.limit(1)).first() is not None

    def in_trouble(self, job_id: str) -> bool:
        """Return whether the last attempt of one of the job's open steps failed or lost its worker."""
        again = or_(StepRow.attempts > 1, and_(StepRow.attempts > 0, StepRow.state == StepState.READY))
        query = select(StepRow.id).where(
            StepRow.job_id == job_id, StepRow.state.in_(OPEN), or_(again, StepRow.error.is_not(None))
        )
        return self._run(query.limit(1)).first() is not None

    def in_flight(self, job_id: str) -> dict[str, Json]:
        """Return the `in_flight` of the job's leased steps, by step."""
        query = select(StepRow.id, StepRow.in_flight).where(
            StepRow.job_id == job_id, StepRow.state == StepState.LEASED, StepRow.in_flight.is_not(None)
        )
        return {row[0]: row[1] for row in self._run(query.order_by(StepRow.id))}

    def cancel_ready(self, job_id: str) -> None:
        """Cancel the job's steps that no worker holds.

        Rows that somebody has locked are passed over: unlike elsewhere, the job's row is locked already.
        """
        ready = self._lock(StepRow.job_id == job_id, StepRow.state == StepState.READY, skip_locked=True)
        self._change(ready, state=StepState.CANCELLED, finished_at=db_now())

    def lock_open(self, job_id: str) -> tuple[Step, ...]:
        """Return the job's open steps, their rows locked until the end of the unit of work."""
        ids = self._lock(StepRow.job_id == job_id, StepRow.state.in_(OPEN))
        return self._all(Step, select(_STEPS).where(StepRow.id.in_(ids)).order_by(StepRow.id))

    def next_round(self, kind: StepKind, subject_id: str) -> int:
        """Return the number of the first round without a step of this kind."""
        query = select(func.max(StepRow.round)).where(StepRow.kind == kind, StepRow.subject_id == subject_id)
        newest = self._run(query).scalar_one_or_none()
        return 0 if newest is None else int(newest) + 1

    def newest_failed(self, job_id: str) -> Step | None:
        """Return the step whose failure ended the job; None if there is none."""
        query = select(_STEPS).where(StepRow.job_id == job_id, StepRow.state == StepState.FAILED)
        return self._first(Step, query.order_by(StepRow.finished_at.desc(), StepRow.id.desc()).limit(1))

    def reopen(self, step_id: str) -> Step | None:
        """Make a failed step due now with its counts of tries reset, and mark it as sent."""
        statement = (
            update(_STEPS)
            .where(StepRow.id == step_id, StepRow.state == StepState.FAILED)
            .values(
                state=StepState.READY,
                attempts=0,
                faults=0,
                error=None,
                finished_at=None,
                not_before=db_now(),
                sent_at=db_now(),
            )
        )
        return self._first(Step, statement.returning(_STEPS))

    def pause(self, job_id: str) -> tuple[Step, ...]:
        """Pause the job's open steps: none can be claimed until `resume`, and leased ones lose their lease.

        A worker that holds one learns this at its next renewal, and cannot write any more. This does not count as a try.
        """
        return self._pause(StepRow.job_id == job_id)

    def pause_step(self, step_id: str) -> None:
        """Pause one step of a paused job; the caller has locked the step's row."""
        self._pause(StepRow.id == step_id)

    def _pause(self, which: ColumnElement[bool]) -> tuple[Step, ...]:
        held = StepRow.state == StepState.LEASED
        return self._change(
            self._lock(which, StepRow.state.in_([StepState.READY, StepState.LEASED])),
            state=StepState.PAUSED,
            **NOT_LEASED,
            attempts=case((held, StepRow.attempts - 1), else_=StepRow.attempts),
        )

    def resume(self, job_id: str) -> tuple[Step, ...]:
        """Make the job's paused steps due now, and mark them as sent."""
        paused = self._lock(StepRow.job_id == job_id, StepRow.state == StepState.PAUSED)
        return self._change(paused, state=StepState.READY, not_before=db_now(), sent_at=db_now())

    def _lock(self, *which: ColumnElement[bool], skip_locked: bool = False) -> list[str]:
        """Lock the rows of these steps until the end of the unit of work; return their ids.

        Always in the same order: two that lock some of the same steps must not wait for each other.
        """
        query = select(StepRow.id).where(*which).order_by(StepRow.id)
        # FOR UPDATE is not rendered for SQLite, where BEGIN IMMEDIATE has locked the database.
        return list(self._run(query.with_for_update(skip_locked=skip_locked)).scalars())

    def _change(self, step_ids: Sequence[str], **values: Any) -> tuple[Step, ...]:
        if not step_ids:
            return ()
        statement = update(_STEPS).where(StepRow.id.in_(step_ids)).values(**values)
        return self._all(Step, statement.returning(_STEPS))
