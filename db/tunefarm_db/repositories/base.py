"""The base of all repositories: rows as values, inserts, pages of a list."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar
from unicodedata import normalize

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    FromClause,
    Select,
    Table,
    TableValuedAlias,
    Text,
    and_,
    cast,
    func,
    insert,
    literal,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.orm import InstrumentedAttribute

from tunefarm_db.tables.columns import joined_texts
from tunefarm_db.values import Page
from tunefarm_tuning.core.errors import InvalidInputError, InvariantError, TunefarmError

V = TypeVar("V")

MAX_LIMIT = 500

_TOO_MUCH = "54"
"""PostgreSQL's class of error codes for a row too large for its index, for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of rows; equal ones are sorted newest first.

    Attributes:
        id: The column of their ids.
        tables: The tables that `key` refers to.
        key: What they are sorted by, which no row lacks.
        largest_first: Whether the largest comes first.
    """

    id: ColumnElement[str]
    tables: FromClause
    key: ColumnElement[Any]
    largest_first: bool = False

    def terms(self) -> list[ColumnElement[Any]]:
        """Return the terms of ORDER BY."""
        return [self.key.desc() if self.largest_first else self.key.asc(), self.id.desc()]

    def after(self, value: Any, row_id: str) -> ColumnElement[bool]:
        """Return the condition that a row comes after the one of this id, whose key is `value`."""
        if self.key is self.id:
            return self.id < row_id if self.largest_first else self.id > row_id
        beyond = self.key < value if self.largest_first else self.key > value
        return or_(beyond, and_(self.key == value, self.id < row_id))


class Repository:
    """Base of the repositories."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _run(
        self, statement: Executable, rows: Iterable[Mapping[str, Any]] | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        return self._connection.execute(statement, None if rows is None else [dict(r) for r in rows])

    def _all(self, kind: type[V], statement: Executable) -> tuple[V, ...]:
        """Run a query; return its rows as values. A column fills the field of its name; other columns are ignored."""
        result = self._run(statement)
        indices = _column_indices(kind, result)
        return tuple(kind(**{name: row[index] for name, index in indices}) for row in result)

    def _first(self, kind: type[V], statement: Executable) -> V | None:
        """Run a query; return its first row as a value, None if there is no row."""
        result = self._run(statement)
        indices = _column_indices(kind, result)
        row = result.first()
        return None if row is None else kind(**{name: row[index] for name, index in indices})

    def _required(self, kind: type[V], statement: Executable, missing: TunefarmError) -> V:
        """Run a query; return its first row as a value. Raise `missing` if there is no row."""
        value = self._first(kind, statement)
        if value is None:
            raise missing
        return value

    def _page(
        self,
        kind: type[V],
        query: Select[*tuple[Any, ...]],
        key: ColumnElement[str] | InstrumentedAttribute[str],
        *,
        cursor: str | None,
        limit: int,
        newest_first: bool = True,
    ) -> Page[V]:
        """Run a query for one page, in the order of `key`: the column ``id``, which is the cursor too."""
        limit = checked_limit(limit)
        if cursor is not None:
            query = query.where(key < cursor if newest_first else key > cursor)
        query = query.order_by(key.desc() if newest_first else key).limit(limit + 1)
        return page_of(self._all(kind, query), limit, attrgetter("id"))

    def _sorted_page(
        self,
        kind: type[V],
        query: Select[*tuple[Any, ...]],
        order: Order,
        *,
        cursor: str | None,
        limit: int,
    ) -> Page[V]:
        """Run a query for one page in any order; the cursor is the id of the last row of the page before.

        Rows that change places between two pages may be in both, or in none.

        Raises:
            InvalidInputError: ``invalid-cursor`` if the order needs that row, and there is none.
        """
        limit = checked_limit(limit)
        if cursor is not None:
            last = select(order.key).select_from(order.tables).where(order.id == cursor)
            value = cursor if order.key is order.id else self._run(last).scalar_one_or_none()
            if value is None:
                raise InvalidInputError(
                    "the cursor is not one that this list gave out", code="invalid-cursor"
                )
            query = query.where(order.after(value, cursor))
        query = query.order_by(*order.terms()).limit(limit + 1)
        return page_of(self._all(kind, query), limit, attrgetter("id"))

    def _add(self, kind: type[V], table: Table, values: Mapping[str, Any]) -> V:
        """Insert a row; return it as a value, with the columns that the database filled in."""
        statement = insert(table).values(values).returning(table)
        return self._required(kind, statement, InvariantError(f"nothing was added to {table.name}"))

    def _texts(self, values: Collection[str], name: str) -> TableValuedAlias:
        """Return these texts as a table with one column, ``value``, so that one statement takes any number of them."""
        array = literal(json.dumps(list(values)), Text())
        if self._connection.dialect.name == "postgresql":
            elements = func.json_array_elements_text(cast(array, JSON))
            return elements.table_valued("value", name=name).render_derived()
        return func.json_each(array).table_valued("value", name=name)

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Return an INSERT that supports ON CONFLICT in the connection's dialect."""
        return (
            postgresql.insert(table)
            if self._connection.dialect.name == "postgresql"
            else sqlite.insert(table)
        )


def _column_indices(kind: type[Any], result: CursorResult[*tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Return the fields of a value and the indices of their columns; cached, because it is needed for each row."""
    indices = {name: index for index, name in enumerate(result.keys())}
    return [(field.name, indices[field.name]) for field in fields(kind)]


def equal(columns: Any, **values: Any) -> list[ColumnElement[bool]]:
    """Return a condition ``column = value`` for each value that is not None."""
    return [columns[name] == value for name, value in values.items() if value is not None]


def page_of(items: tuple[V, ...], limit: int, cursor: Any) -> Page[V]:
    """Return a page of `items`, which were queried with a limit of ``limit + 1``; ``cursor(item)`` is an item's cursor."""
    if len(items) <= limit:
        return Page(items=items)
    shown = items[:limit]
    return Page(items=shown, next_cursor=cursor(shown[-1]))


def is_of_data(error: DBAPIError) -> bool:
    """Return whether a value cannot be stored, now or later: a NUL in a text, a text too long for an index."""
    code = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, DataError) or code.startswith(_TOO_MUCH)


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


def has_tag(column: ColumnElement[Any], tag: str) -> ColumnElement[bool]:
    """Return the condition that a column with a list of tags has this one. A tag has no quotes, and small letters."""
    return cast(column, Text).contains(json.dumps(tag), autoescape=True)


def has_text(
    text: str, columns: Sequence[ColumnElement[Any]], tags: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition that one of the columns, or a tag (stored in small letters and NFC), contains a text, in any case."""
    in_tags = joined_texts(tags).contains(normalize("NFC", text.lower()), autoescape=True)
    return or_(in_tags, *(column.icontains(text, autoescape=True) for column in columns))
