"""Kernel sources: stored, being generated, or failed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import SourceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, Source, SourceState

_SOURCES = table_of(SourceRow)


class Sources(Repository):
    """Generated source code of kernels, kept for a time."""

    def find(self, key: str) -> Source | None:
        return self._first(Source, select(_SOURCES).where(SourceRow.key == key))

    def begin(self, key: str, *, record_id: str, target: Json) -> None:
        """Mark the source as being generated; an earlier result is replaced."""
        request = {"record_id": record_id, "target": target, **_state(SourceState.MAKING)}
        statement = self._insert(_SOURCES).values(key=key, **request)
        self._run(statement.on_conflict_do_update(index_elements=["key"], set_=request))

    def set_ready(self, key: str, *, sha256: str, size_bytes: int) -> None:
        """Mark the source as ready, with its blob, which must be in `Blobs` already."""
        self._set(key, _state(SourceState.READY, sha256=sha256, size_bytes=size_bytes))

    def set_failed(self, key: str, error: Json) -> None:
        self._set(key, _state(SourceState.FAILED, error=error))

    def older_than(self, age_sec: float, *, limit: int) -> tuple[Source, ...]:
        """Return sources that became ready or failed at least `age_sec` ago, oldest first."""
        query = select(_SOURCES).where(
            SourceRow.state != SourceState.MAKING, SourceRow.updated_at < db_now() - age_sec
        )
        return self._all(Source, query.order_by(SourceRow.updated_at, SourceRow.key).limit(limit))

    def delete(self, key: str) -> None:
        self._run(delete(_SOURCES).where(SourceRow.key == key))

    def _set(self, key: str, values: dict[str, Any]) -> None:
        self._run(update(_SOURCES).where(SourceRow.key == key).values(**values))


def _state(state: SourceState, **values: Any) -> dict[str, Any]:
    return {
        "state": state,
        "error": None,
        "sha256": None,
        "size_bytes": None,
        "updated_at": db_now(),
        **values,
    }
