"""Traces: the spans of uploads and of attempts at steps."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import and_, delete, or_, select

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import TraceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, Trace
from tunefarm_tuning.core.spans import Span

_TRACES = table_of(TraceRow)


class Traces(Repository):
    """Traces of jobs. They are written outside of the fence: an attempt that failed took time, too."""

    def add(self, *, model_id: str, job_id: str | None, spans: Sequence[Span], dropped: int = 0) -> Trace:
        """Add the trace of one attempt at a step, or of an upload."""
        values = {
            "id": new_id("trc"),
            "model_id": model_id,
            "job_id": job_id,
            "spans": [span.to_json() for span in spans],
            "dropped": dropped,
        }
        return self._add(Trace, _TRACES, values)

    def of_job(self, job: Job, limit: int | None = None) -> tuple[Trace, ...]:
        """Return the traces of a job, and of its model's upload and import, oldest first, at most `limit`."""
        shared = and_(TraceRow.model_id == job.model_id, TraceRow.job_id.is_(None))
        query = select(_TRACES).where(or_(TraceRow.job_id == job.id, shared))
        return self._all(Trace, query.order_by(TraceRow.id).limit(limit))

    def forget(self, age_sec: float, *, limit: int) -> int:
        """Delete at most `limit` traces that are older than `age_sec`; return how many."""
        old = select(TraceRow.id).where(TraceRow.created_at < db_now() - age_sec).limit(limit)
        return int(self._run(delete(_TRACES).where(TraceRow.id.in_(old))).rowcount)
