"""The database's clock in statements."""

from __future__ import annotations

import pytest
from sqlalchemy import Dialect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import ClauseElement

from tunefarm_db.tables import StepRow, table_of
from tunefarm_db.tables.columns import db_now

STATEMENTS = [
    select(StepRow.id).where(StepRow.not_before <= db_now() - 5.0),
    update(table_of(StepRow)).values(finished_at=db_now()),
    select(db_now()),
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_that_tell_the_time_are_compiled_once(statement: ClauseElement) -> None:
    assert statement._generate_cache_key() is not None


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [(sqlite.dialect(), "julianday"), (postgresql.dialect(), "statement_timestamp()")],
)
def test_each_database_tells_it_its_own_way(dialect: Dialect, expected: str) -> None:
    for statement in STATEMENTS:
        assert str(statement.compile(dialect=dialect)).count(expected) == 1
