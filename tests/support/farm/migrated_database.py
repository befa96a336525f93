"""Databases with their schema: made once per process and copied, because a migration takes 0.1 s on SQLite and 0.7 s on PostgreSQL."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psycopg
from sqlalchemy import URL, make_url

from tunefarm_db import schema


def upgrade(url: str) -> None:
    """Give a database its schema, as `schema.upgrade` does; one that does not exist yet, or is empty, becomes a copy."""
    where = make_url(url)
    if where.get_backend_name() == "postgresql":
        _upgrade_postgres(where)
        return
    path = Path(url.removeprefix("sqlite:///"))
    if path.exists():
        schema.upgrade(url)
    else:
        path.write_bytes(_migrated_sqlite())


@cache
def _migrated_sqlite() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        schema.upgrade(f"sqlite:///{path}")
        assert [file.name for file in Path(folder).iterdir()] == [path.name], "nothing waits in a journal"
        return path.read_bytes()


def _upgrade_postgres(where: URL) -> None:
    with _connected(where) as connection:
        has_tables, may_copy = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public'), rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchone() or (True, False)
    if has_tables or not may_copy:
        schema.upgrade(_text_of(where))
        return
    server = where.set(database="postgres")
    template = _migrated_postgres(server)
    _order(
        server,
        f'DROP DATABASE "{where.database}"',
        f'CREATE DATABASE "{where.database}" TEMPLATE "{template}"',
    )


@cache
def _migrated_postgres(server: URL) -> str:
    """Make a database with the schema in a server; return its name."""
    name = f"migrated_{uuid4().hex}"
    _order(server, f'CREATE DATABASE "{name}"')
    schema.upgrade(_text_of(server.set(database=name)))
    return name


def _order(server: URL, *statements: str) -> None:
    with _connected(server) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _connected(where: URL) -> psycopg.Connection:
    return psycopg.connect(_text_of(where), autocommit=True)


def _text_of(where: URL) -> str:
    return where.render_as_string(hide_password=False)
