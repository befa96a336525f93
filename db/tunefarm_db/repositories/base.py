"""What the repositories share: rows to values, pages, inserts that may find their row present."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, RowMapping, Table
from sqlalchemy.dialects import postgresql, sqlite

from tunefarm_db.values import Page
from tunefarm_tuning.errors import InvalidInputError

V = TypeVar("V")

MAX_LIMIT = 500


class Repository:
    """Base of the repositories."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _run(
        self, statement: Executable, rows: Iterable[Mapping[str, Any]] | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        return self._connection.execute(statement, None if rows is None else [dict(r) for r in rows])

    def _all(self, kind: type[V], statement: Executable) -> tuple[V, ...]:
        return tuple(value_of(kind, row) for row in self._run(statement).mappings())

    def _first(self, kind: type[V], statement: Executable) -> V | None:
        row = self._run(statement).mappings().first()
        return None if row is None else value_of(kind, row)

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Return an INSERT that knows ON CONFLICT in the connection's dialect."""
        return (
            postgresql.insert(table)
            if self._connection.dialect.name == "postgresql"
            else sqlite.insert(table)
        )


def value_of(kind: type[V], row: RowMapping) -> V:
    """Make the frozen value whose field names are the row's column names."""
    return kind(**{f.name: row[f.name] for f in fields(kind)})  # type: ignore[arg-type]


def page_of(items: tuple[V, ...], limit: int, cursor: Any) -> Page[V]:
    """Make a page of `items`, which were read with a limit of ``limit + 1``; ``cursor(item)`` is a row's cursor."""
    if len(items) <= limit:
        return Page(items=items)
    shown = items[:limit]
    return Page(items=shown, next_cursor=cursor(shown[-1]))


def checked_limit(limit: int) -> int:
    """Return `limit`, which must be between 1 and `MAX_LIMIT`.

    Raises:
        InvalidInputError: Otherwise.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInputError(
            f"limit is {limit}, but must be between 1 and {MAX_LIMIT}",
            code="invalid-limit",
            max_limit=MAX_LIMIT,
        )
    return limit
