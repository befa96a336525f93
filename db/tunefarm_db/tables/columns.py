"""Column types and the database's clock, the same for SQLite and PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import JSON, Dialect, Double, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

E = TypeVar("E", bound=StrEnum)


class EnumText(TypeDecorator[E], Generic[E]):
    """A `StrEnum` stored by value as text. A native enum would need a migration for each new member."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> E | None:  # noqa: ARG002
        return None if value is None else self.kind(value)


class JsonText(TypeDecorator[Any]):
    """JSON; None is SQL's NULL. Plain ``json`` on PostgreSQL: it keeps the text as written, ``jsonb`` does not."""

    impl = JSON(none_as_null=True)
    cache_ok = True


class db_now(FunctionElement[float]):  # noqa: N801  (reads as an SQL function)
    """Unix seconds by the database's clock, as of the statement's start.

    The transaction's start would be wrong: a transaction that waited for a lock must see the time after the wait.
    """

    # Without this, SQLAlchemy would not cache the statements that contain it, and would compile them each time.
    inherit_cache = True
    type = Double()


@compiles(db_now, "sqlite")
def _sqlite_now(_element: db_now, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(db_now, "postgresql")
def _postgresql_now(_element: db_now, _compiler: SQLCompiler, **_kw: Any) -> str:
    # The cast keeps comparisons with double precision columns indexable: extract() is numeric.
    return "extract(epoch from statement_timestamp())::double precision"


class joined_texts(FunctionElement[str]):  # noqa: N801
    """The texts of a column with a JSON list of them, one a line; None of an empty list."""

    inherit_cache = True
    type = Text()


@compiles(joined_texts, "sqlite")
def _sqlite_joined(element: joined_texts, compiler: SQLCompiler, **kw: Any) -> str:
    texts = f"json_each({compiler.process(element.clauses, **kw)})"
    return f"(SELECT group_concat(value, char(10)) FROM {texts})"  # noqa: S608


@compiles(joined_texts, "postgresql")
def _postgresql_joined(element: joined_texts, compiler: SQLCompiler, **kw: Any) -> str:
    texts = f"json_array_elements_text({compiler.process(element.clauses, **kw)})"
    return f"(SELECT string_agg(value, chr(10)) FROM {texts} AS texts(value))"  # noqa: S608
