"""What the repositories share: rows to values, pages, inserts that may find their row present."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    Connection,
    CursorResult,
    Executable,
    Table,
    TableValuedAlias,
    Text,
    cast,
    func,
    literal,
)
from sqlalchemy.dialects import postgresql, sqlite

from tunefarm_db.values import Page
from tunefarm_tuning.core.errors import InvalidInputError

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
        result = self._run(statement)
        wanted = _places(kind, result)
        return tuple(kind(**{name: row[place] for name, place in wanted}) for row in result)

    def _first(self, kind: type[V], statement: Executable) -> V | None:
        result = self._run(statement)
        wanted = _places(kind, result)
        row = result.first()
        return None if row is None else kind(**{name: row[place] for name, place in wanted})

    def _texts(self, values: Collection[str], name: str) -> TableValuedAlias:
        """Return a table with one column, ``value``, of these texts: one statement for any number of them."""
        given = literal(json.dumps(list(values)), Text())
        if self._connection.dialect.name == "postgresql":
            listed = func.json_array_elements_text(cast(given, JSON))
            return listed.table_valued("value", name=name).render_derived()
        return func.json_each(given).table_valued("value", name=name)

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Return an INSERT that knows ON CONFLICT in the connection's dialect."""
        return (
            postgresql.insert(table)
            if self._connection.dialect.name == "postgresql"
            else sqlite.insert(table)
        )


_NAMES: dict[type[Any], tuple[str, ...]] = {}


def _names_of(kind: type[Any]) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


def _places(kind: type[Any], result: CursorResult[*tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Return where in a row each field of the value is: looked up once, and not for each row."""
    places = {name: place for place, name in enumerate(result.keys())}
    return [(name, places[name]) for name in _names_of(kind)]


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
