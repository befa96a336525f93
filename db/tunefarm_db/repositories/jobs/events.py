"""Events of a job, numbered."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, update

from tunefarm_db.repositories.base import MAX_LIMIT, Repository, checked_limit
from tunefarm_db.repositories.jobs.jobs import job_not_found
from tunefarm_db.repositories.webhooks.deliveries import Deliveries
from tunefarm_db.tables import EventRow, JobRow, table_of
from tunefarm_db.values import Event, Json

_EVENTS = table_of(EventRow)
_JOBS = table_of(JobRow)


class Events(Repository):
    """Events of jobs.

    Concurrency: numbers are assigned under the job's row lock, so a reader of number n has missed none below it.
    """

    def add(self, job_id: str, kind: str, data: Json) -> Event:
        """Append an event, and queue its deliveries to webhooks.

        Raises:
            NotFoundError: ``job-not-found``.
        """
        seq = self._run(
            update(_JOBS)
            .where(JobRow.id == job_id)
            .values(event_seq=JobRow.event_seq + 1)
            .returning(JobRow.event_seq)
        ).scalar_one_or_none()
        if seq is None:
            raise job_not_found(job_id)
        values = {"job_id": job_id, "seq": seq, "kind": kind, "data": data}
        event = self._add(Event, _EVENTS, values)
        Deliveries(self._connection).queue(event)
        return event

    def after(self, job_id: str, seq: int = 0, *, limit: int = MAX_LIMIT) -> tuple[Event, ...]:
        """Return the events above `seq`, in order, at most `limit`."""
        query = select(_EVENTS).where(EventRow.job_id == job_id, EventRow.seq > seq)
        return self._all(Event, query.order_by(EventRow.seq).limit(checked_limit(limit)))

    def with_data(self, job_id: str, kind: str, data: Mapping[str, str]) -> tuple[Event, ...]:
        """Return the job's events of this kind whose data has these values, in order."""
        same = [EventRow.data[name].as_string() == value for name, value in data.items()]
        query = select(_EVENTS).where(EventRow.job_id == job_id, EventRow.kind == kind, *same)
        return self._all(Event, query.order_by(EventRow.seq))
