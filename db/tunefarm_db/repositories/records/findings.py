"""Findings: what compiles found out about kernels and alternatives."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import FindingRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Finding, Json

_FINDINGS = table_of(FindingRow)


class Findings(Repository):
    """What compiles found out, by keys of `tunefarm_tuning.records.findings`."""

    def find(self, key: str, *, age_sec: float) -> Finding | None:
        """Return a finding that is at most `age_sec` old."""
        query = select(_FINDINGS).where(FindingRow.key == key, FindingRow.created_at >= db_now() - age_sec)
        return self._first(Finding, query)

    def store(self, findings: Mapping[str, Json]) -> None:
        """Store findings, also in place of earlier ones."""
        for key, value in sorted(findings.items()):
            row = {"value": value, "created_at": db_now()}
            statement = self._insert(_FINDINGS).values(key=key, **row)
            self._run(statement.on_conflict_do_update(index_elements=["key"], set_=row))

    def forget(self, age_sec: float, *, limit: int) -> int:
        """Delete at most `limit` findings that are older than `age_sec`; return how many."""
        old = select(FindingRow.key).where(FindingRow.created_at < db_now() - age_sec).limit(limit)
        return int(self._run(delete(_FINDINGS).where(FindingRow.key.in_(old))).rowcount)
