"""Steps: the queue of work. It is in the database; a Celery message only tells a worker to look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import MAX_LIMIT
from tunefarm_db.repositories.jobs.job_steps import NOT_LEASED, OPEN, JobSteps
from tunefarm_db.tables import StepRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, Json, Step, StepKind, StepState
from tunefarm_tuning.core.errors import InvariantError, LeaseLostError, NotFoundError, TransientError

_STEPS = table_of(StepRow)


class Steps(JobSteps):
    """Claims, leases and fences of steps.

    Concurrency: any number of workers may call anything at once. Exactly one of them holds a step; each claim
        raises its `fence`, and nothing is written under an old one.
    Failure: a worker that dies keeps its lease until `lease_until` (by the database's clock). Then the step can be
        claimed again, or `reap_expired` makes it ready.
    """

    def add(
        self,
        kind: StepKind,
        *,
        subject_id: str,
        model_id: str,
        job_id: str | None = None,
        round: int = 0,  # noqa: A002  (the column's name)
        delay_sec: float = 0.0,
        asked_by: str | None = None,
    ) -> Step:
        """Plan a step; it is due at once, or after `delay_sec`.

        Raises:
            ConflictError: If the same (kind, subject, round) was planned before.
        """
        values = {
            "id": new_id("stp"),
            "kind": kind,
            "subject_id": subject_id,
            "model_id": model_id,
            "job_id": job_id,
            "round": round,
            "not_before": db_now() + delay_sec,
            "asked_by": asked_by,
        }
        return self._add(Step, _STEPS, values)

    def add_next(self, kind: StepKind, job: Job) -> Step:
        """Plan the job's next step of this kind; it is due at once. Lock the job's row first."""
        round_ = self.next_round(kind, job.id)
        return self.add(kind, subject_id=job.id, model_id=job.model_id, job_id=job.id, round=round_)

    def get(self, step_id: str) -> Step:
        """Return a step. Raises `NotFoundError` if it does not exist."""
        missing = NotFoundError("there is no such step", code="step-not-found", step_id=step_id)
        return self._required(Step, select(_STEPS).where(StepRow.id == step_id), missing)

    def find(self, kind: StepKind, subject_id: str, round: int = 0) -> Step | None:  # noqa: A002
        return self._first(
            Step,
            select(_STEPS).where(
                StepRow.kind == kind, StepRow.subject_id == subject_id, StepRow.round == round
            ),
        )

    def for_job(self, job_id: str) -> tuple[Step, ...]:
        """Return the job's steps, oldest first."""
        return self._all(Step, select(_STEPS).where(StepRow.job_id == job_id).order_by(StepRow.id))

    def claim(
        self, step_id: str, owner: str, lease_sec: float, *, max_attempts: int | None = None
    ) -> Step | None:
        """Lease the step for `lease_sec`, under a new fence.

        Returns:
            The claimed step, or None if it cannot be claimed: it is not due, done, held by another worker,
            or was tried `max_attempts` times (then `reap_expired` fails it; None: it may be tried any number of times).
        """
        statement = update(_STEPS).where(StepRow.id == step_id, _claimable(max_attempts))
        return self._first(Step, _taken(statement, owner, lease_sec))

    def renew(self, step_id: str, fence: int, lease_sec: float) -> bool:
        """Extend the lease to `lease_sec` from now; return False if another worker holds the step."""
        statement = update(_STEPS).where(_held(step_id, fence)).values(lease_until=db_now() + lease_sec)
        return self._run(statement).rowcount == 1

    def lock_claimed(self, step_id: str, fence: int) -> Step:
        """Check that this worker holds the step, and lock the step until the end of the unit of work.

        Every unit of work that writes for a step calls this first.

        Raises:
            LeaseLostError: If another worker holds it. Do not catch it inside the unit of work: then nothing is written.
        """
        # An UPDATE that changes nothing: it takes the row's lock on both databases.
        statement = update(_STEPS).where(_held(step_id, fence)).values(fence=StepRow.fence)
        return self._required(Step, statement.returning(_STEPS), _lease_lost(step_id, fence))

    def finish(
        self, step_id: str, fence: int, *, state: StepState = StepState.DONE, error: Json | None = None
    ) -> Step:
        """End the step: done, failed or cancelled.

        Raises:
            LeaseLostError: If the step is no longer ours; let it end the unit of work.
        """
        if state not in (StepState.DONE, StepState.FAILED, StepState.CANCELLED):
            raise InvariantError(f"a step does not finish as {state}")
        statement = (
            update(_STEPS)
            .where(_held(step_id, fence))
            .values(state=state, error=error, finished_at=db_now(), **NOT_LEASED)
        )
        return self._required(Step, statement.returning(_STEPS), _lease_lost(step_id, fence))

    def release(
        self,
        step_id: str,
        fence: int,
        *,
        delay_sec: float = 0.0,
        count_attempt: bool = False,
        fault: bool = False,
        error: Json | None = None,
    ) -> Step:
        """Hand the step back: due again after `delay_sec`.

        Args:
            step_id: The step.
            fence: The fence of the worker's lease.
            delay_sec: Back-off.
            count_attempt: Whether this counts as a try (the step went wrong) or not (no device was free).
            fault: Whether the step itself failed, not its worker or device.
            error: The error of the attempt.

        Raises:
            LeaseLostError: If the step is no longer ours.
        """
        statement = (
            update(_STEPS)
            .where(_held(step_id, fence))
            .values(
                state=StepState.READY,
                **NOT_LEASED,
                not_before=db_now() + delay_sec,
                sent_at=None,
                attempts=StepRow.attempts if count_attempt else StepRow.attempts - 1,
                faults=StepRow.faults + 1 if fault else StepRow.faults,
                error=error,
            )
        )
        return self._required(Step, statement.returning(_STEPS), _lease_lost(step_id, fence))

    def note_in_flight(self, step_id: str, fence: int, in_flight: Json) -> None:
        """Store what the step works on, until its lease ends; the other steps of its job read it.

        Raises:
            LeaseLostError: If the step is no longer ours; let it end the unit of work.
        """
        if self._run(update(_STEPS).where(_held(step_id, fence)).values(in_flight=in_flight)).rowcount != 1:
            raise _lease_lost(step_id, fence)

    def due(self, limit: int = 100, *, resend_after_sec: float = 30.0) -> tuple[Step, ...]:
        """Return ready steps that are due and were not sent within `resend_after_sec`, the longest due first."""
        query = select(_STEPS).where(
            StepRow.state == StepState.READY,
            StepRow.not_before <= db_now(),
            or_(StepRow.sent_at.is_(None), StepRow.sent_at <= db_now() - resend_after_sec),
        )
        return self._all(
            Step, query.order_by(StepRow.not_before, StepRow.id).limit(max(1, min(limit, MAX_LIMIT)))
        )

    def mark_sent(self, step_ids: Sequence[str]) -> None:
        """Mark these steps as just sent to the broker; locked ones are skipped."""
        if step_ids:
            self._change(self._lock(StepRow.id.in_(list(step_ids)), skip_locked=True), sent_at=db_now())

    def expedite(self, step_id: str) -> Step | None:
        """Make a ready step due now, and mark it as sent; None if it is not ready or is locked."""
        step_ids = self._lock(StepRow.id == step_id, StepRow.state == StepState.READY, skip_locked=True)
        return next(iter(self._change(step_ids, not_before=db_now(), sent_at=db_now())), None)

    def reap_expired(self, max_attempts: int) -> tuple[Step, ...]:
        """Take back steps whose lease expired, and fail ready ones without further attempts; locked ones are skipped.

        Returns:
            The steps, in their new state: ready again, or failed with ``step-abandoned`` after `max_attempts`.
        """
        expired = and_(StepRow.state == StepState.LEASED, StepRow.lease_until < db_now())
        spent = StepRow.attempts >= max_attempts
        error = TransientError(
            f"the step was tried {max_attempts} times, and each time its worker died or stopped answering",
            code="step-abandoned",
        )
        tried_often = and_(or_(expired, StepRow.state == StepState.READY), spent)
        failed = {"state": StepState.FAILED, "finished_at": db_now(), **NOT_LEASED}
        # A step's own error says more than ours.
        with_error = self._lock(tried_often, StepRow.error.is_not(None), skip_locked=True)
        without_error = self._lock(tried_often, StepRow.error.is_(None), skip_locked=True)
        ready = self._lock(expired, ~spent, skip_locked=True)
        return (
            self._change(with_error, **failed)
            + self._change(without_error, **failed, error=error.to_json())
            + self._change(ready, state=StepState.READY, not_before=db_now(), sent_at=None, **NOT_LEASED)
        )

    def cancel_open(
        self, *, job_id: str | None = None, subject_id: str | None = None, skip_locked: bool = False
    ) -> tuple[Step, ...]:
        """Cancel every step of the job (or the subject) that is not finished, leased ones too.

        A worker that holds one learns it at its next `renew`, and cannot write any more. Locked steps are waited for, or skipped
        with `skip_locked`, where the job's row is locked already.
        """
        if (job_id is None) == (subject_id is None):
            raise InvariantError("cancel_open takes job_id or subject_id")
        whose = StepRow.job_id == job_id if job_id is not None else StepRow.subject_id == subject_id
        step_ids = self._lock(whose, StepRow.state.in_(OPEN), skip_locked=skip_locked)
        return self._change(step_ids, state=StepState.CANCELLED, finished_at=db_now(), **NOT_LEASED)


def _claimable(max_attempts: int | None) -> ColumnElement[bool]:
    ready = and_(StepRow.state == StepState.READY, StepRow.not_before <= db_now())
    expired = and_(StepRow.state == StepState.LEASED, StepRow.lease_until < db_now())
    due = or_(ready, expired)
    return due if max_attempts is None else and_(due, StepRow.attempts < max_attempts)


def _held(step_id: str, fence: int) -> ColumnElement[bool]:
    return and_(StepRow.id == step_id, StepRow.fence == fence, StepRow.state == StepState.LEASED)


def _taken(statement: Any, owner: str, lease_sec: float) -> ReturningUpdate[Any]:
    taken: ReturningUpdate[Any] = statement.values(
        state=StepState.LEASED,
        fence=StepRow.fence + 1,
        attempts=StepRow.attempts + 1,
        lease_owner=owner,
        lease_until=db_now() + lease_sec,
        in_flight=None,
    ).returning(_STEPS)
    return taken


def _lease_lost(step_id: str, fence: int) -> LeaseLostError:
    return LeaseLostError(
        "the step's lease was lost; nothing of this try is kept", step_id=step_id, fence=fence
    )
