"""The whole database as lines of JSON, and back: the same for SQLite and PostgreSQL, and from one to the other.

A dump is one snapshot, taken while the farm runs. It is read back under the schema that it was made of, and brought up
to date afterwards, so that a dump of an older tunefarm can be read as well. The first line of a table names it and its
columns; its rows follow, an array each; the last line says how many rows there are in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from alembic import command
from sqlalchemy import JSON, Connection, Engine, MetaData, Table, select, text, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tunefarm_db import schema
from tunefarm_db.tables import ApiKeyRow, AuditLogRow, Base, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.unit_of_work import translated
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError

_BATCH = 1000
_VERSION_TABLE = "alembic_version"


def dump(engine: Engine) -> Iterator[str]:
    """Yield the lines. The database must have this code's schema. Other transactions need not wait.

    Raises:
        ConflictError: ``schema-outdated``.
        TransientError: If the database is away.
    """
    schema.check_schema(engine)
    rows = 0
    try:
        with _snapshot(engine) as connection:
            for table in Base.metadata.sorted_tables:
                yield _line({"table": table.name, "columns": [column.name for column in table.columns]})
                query = select(table)
                if table.name == AuditLogRow.__tablename__:  # it takes entries in their order alone
                    query = query.order_by(AuditLogRow.seq)
                for row in connection.execution_options(yield_per=_BATCH).execute(query):
                    rows += 1
                    yield _line(list(row))
    except DBAPIError as error:
        raise translated(error) from error
    yield _line({"rows": rows})


def _snapshot(engine: Engine) -> Connection:
    # SQLite's read transaction is a snapshot by itself.
    levels = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    return engine.connect().execution_options(tunefarm_read_only=True, postgresql_readonly=True, **levels)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def load(
    url: str, lines: Iterable[str], *, revision: str, replace: bool = False, keep_keys: bool = True
) -> int:
    """Load a dump into the database in one transaction; return the number of rows.

    Args:
        url: The database. Nobody may work on it.
        lines: The dump.
        revision: The schema that it was made of; the database is brought from there to this code's.
        replace: Whether to delete the rows that are in the database.
        keep_keys: Whether the dump's API keys stay valid, with what acts for them; otherwise they are revoked.

    Raises:
        ConflictError: ``not-empty`` if something is there and may not go; ``in-use`` if somebody works on it.
        InvalidInputError: ``bad-backup`` if the dump is not whole, or of a newer tunefarm.
        TransientError: If the database is away.
    """
    if revision not in schema.revisions():
        raise InvalidInputError(
            f"the backup has the schema {revision}, which this tunefarm does not know: use a newer one",
            code="bad-backup",
        )
    with schema.locked(url) as connection:
        _make_room(connection, replace=replace)
        config = schema.config(connection)
        command.upgrade(config, revision)
        rows = _fill(connection, iter(lines))
        command.upgrade(config, "head")
        if not keep_keys:
            valid = ApiKeyRow.revoked_at.is_(None)
            connection.execute(update(table_of(ApiKeyRow)).where(valid).values(revoked_at=db_now()))
    return rows


def _make_room(connection: Connection, *, replace: bool) -> None:
    if connection.dialect.name == "postgresql":
        others = connection.execute(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'tunefarm' AND pid <> pg_backend_pid()"
            )
        ).scalar_one()
        if others:
            raise ConflictError(
                f"{others} connection(s) of a farm are open: stop its API and worker processes first",
                code="in-use",
            )
    present = MetaData()
    present.reflect(connection)
    if not replace:
        for table in present.sorted_tables:
            if (
                table.name != _VERSION_TABLE
                and connection.execute(select(1).select_from(table).limit(1)).first()
            ):
                raise ConflictError(
                    f"the database is not empty (its table {table.name} is not): "
                    "name an empty one, or let what is there go (--replace)",
                    code="not-empty",
                )
    present.drop_all(connection)


def _fill(connection: Connection, lines: Iterator[str]) -> int:
    present = MetaData()
    present.reflect(connection)
    table: Table | None = None
    columns: list[str] = []
    rows = 0
    try:
        while batch := [json.loads(line) for line in islice(lines, _BATCH)]:
            pending: list[dict[str, Any]] = []
            for value in batch:
                if isinstance(value, list) and table is not None:
                    pending.append(dict(zip(columns, value, strict=True)))
                    continue
                if table is not None and pending:
                    connection.execute(table.insert(), pending)
                    rows += len(pending)
                    pending = []
                if "rows" in value:
                    return _checked(rows, value["rows"], next(lines, None))
                table, columns = _writable(present.tables[value["table"]]), value["columns"]
                if set(columns) != set(table.columns.keys()):
                    raise ValueError(f"the columns of {table.name} are not those of its schema")
            if table is not None and pending:
                connection.execute(table.insert(), pending)
                rows += len(pending)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the backup's database cannot be read: {error}", code="bad-backup"
        ) from error
    except DBAPIError as error:
        raise translated(error) from error
    except SQLAlchemyError as error:
        raise InvalidInputError("the backup's rows do not fit its schema", code="bad-backup") from error
    raise InvalidInputError("the backup's database ends in the middle", code="bad-backup")


def _checked(rows: int, announced: object, more: str | None) -> int:
    if rows != announced or more is not None:
        raise InvalidInputError(f"the backup has {rows} rows instead of {announced}", code="bad-backup")
    return rows


def _writable(table: Table) -> Table:
    """Store None as SQL's NULL: a reflected JSON column would store the JSON text ``null``."""
    for column in table.columns:
        if isinstance(column.type, JSON):
            column.type = JSON(none_as_null=True)
    return table
