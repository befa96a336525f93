"""Tuning records: measured facts that outlive their job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Select, insert, select, union_all

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, checked_limit, page_of
from tunefarm_db.tables import RecordRow, table_of
from tunefarm_db.values import NewRecord, Page, Record

_RECORDS = table_of(RecordRow)
_KEYS_PER_QUERY = 100  # SQLite takes at most 500 terms in a compound SELECT


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which records are wanted; None means any."""

    workload_key: str | None = None
    target_key: str | None = None
    device_model: str | None = None
    toolchain: str | None = None
    outcome: str | None = None
    job_id: str | None = None


class Records(Repository):
    def add_many(self, records: Sequence[NewRecord]) -> tuple[str, ...]:
        """Store records; return their ids, in order."""
        rows = [{"id": new_id("rec"), **asdict(r)} for r in records]
        if rows:
            self._run(insert(_RECORDS), rows)
        return tuple(row["id"] for row in rows)

    def best(
        self, workload_keys: Collection[str], *, target_key: str, device_model: str, toolchain: str
    ) -> dict[str, Record]:
        """Return each workload's fastest record, by workload key; workloads without one are left out.

        One index seek per workload, however many records there are.
        """
        best: dict[str, Record] = {}
        keys = sorted(set(workload_keys))
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            seeks = [
                # The subquery around each seek is for SQLite, which takes no LIMIT inside a UNION otherwise.
                select(_by_cost(key, target_key, device_model, toolchain).limit(1).subquery(f"w{number}"))
                for number, key in enumerate(keys[start : start + _KEYS_PER_QUERY])
            ]
            statement = seeks[0] if len(seeks) == 1 else union_all(*seeks)
            best |= {record.workload_key: record for record in self._all(Record, statement)}
        return best

    def top(
        self,
        workload_key: str,
        *,
        target_key: str,
        device_model: str,
        toolchain: str,
        space_key: str | None = None,
        limit: int = 8,
    ) -> tuple[Record, ...]:
        """Return one workload's fastest records, fastest first."""
        query = _by_cost(workload_key, target_key, device_model, toolchain)
        if space_key is not None:
            query = query.where(RecordRow.space_key == space_key)
        return self._all(Record, query.limit(checked_limit(limit)))

    def history(
        self,
        workload_key: str,
        *,
        target_key: str,
        device_model: str,
        toolchain: str,
        space_key: str | None = None,
        limit: int = 1000,
    ) -> tuple[Record, ...]:
        """Return one workload's newest records, failures included, newest first: what a tuner can learn from."""
        query = select(_RECORDS).where(
            RecordRow.workload_key == workload_key,
            RecordRow.target_key == target_key,
            RecordRow.device_model == device_model,
            RecordRow.toolchain == toolchain,
        )
        if space_key is not None:
            query = query.where(RecordRow.space_key == space_key)
        return self._all(Record, query.order_by(RecordRow.id.desc()).limit(limit))

    def for_job(self, job_id: str) -> tuple[Record, ...]:
        """Return all records that the job measured, oldest first."""
        return self._all(Record, select(_RECORDS).where(RecordRow.job_id == job_id).order_by(RecordRow.id))

    def query(
        self, wanted: RecordFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Record]:
        """Return the records that match, newest first."""
        limit = checked_limit(limit)
        query = select(_RECORDS).order_by(RecordRow.id.desc()).limit(limit + 1)
        for name, value in asdict(wanted or RecordFilter()).items():
            if value is not None:
                query = query.where(_RECORDS.c[name] == value)
        if cursor is not None:
            query = query.where(RecordRow.id < cursor)
        return page_of(self._all(Record, query), limit, lambda record: record.id)


def _by_cost(workload_key: str, target_key: str, device_model: str, toolchain: str) -> Select[Any]:
    return (
        select(_RECORDS)
        .where(
            RecordRow.workload_key == workload_key,
            RecordRow.target_key == target_key,
            RecordRow.device_model == device_model,
            RecordRow.toolchain == toolchain,
            RecordRow.cost_sec.is_not(None),  # spelled as in the partial index, which else is not used
        )
        .order_by(RecordRow.cost_sec)
    )
