"""Open SQLite and PostgreSQL databases."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from tunefarm_tuning.core.errors import InvalidInputError

BUSY_TIMEOUT_MS = 15_000
IDLE_IN_TRANSACTION_MS = 30_000
"""PostgreSQL frees the locks of a transaction whose process froze or vanished after this time."""


def make_engine(url: str) -> Engine:
    """Return an engine for ``sqlite:////path/to/file.db`` or ``postgresql://user@host/name``; connects to nothing yet.

    Raises:
        InvalidInputError: ``invalid-database-url``. The message never holds the URL, which may hold a password.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    return _postgresql_engine(parsed)


def _postgresql_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        pool_size=5,
        hide_parameters=True,  # secrets are among them, and a message goes into the log
        json_deserializer=_read_json,
        max_overflow=20,
        pool_pre_ping=True,  # so that no request fails after a restart of the server
        connect_args={"connect_timeout": 10, "application_name": "tunefarm"},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        # Else nobody could take over the steps that it holds. Our own transactions never wait for slow work.
        connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        connection.commit()

    return engine


def _read_json(text: str) -> Any:
    """Read stored JSON; a number that is not finite (1e400, NaN), which no answer can hold, is read as null."""
    return json.loads(text, parse_float=_finite, parse_constant=lambda _: None)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def parse_url(url: str) -> URL:
    """Return the URL with its driver: psycopg 3 for PostgreSQL, the standard library's for SQLite."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidInputError("the database URL cannot be read", code="invalid-database-url") from error
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or "mode=memory" in url:
            raise InvalidInputError(
                "an in-memory SQLite database cannot be shared between processes: name a file",
                code="invalid-database-url",
            )
        return parsed.set(drivername="sqlite")
    raise InvalidInputError(
        f"the database must be sqlite or postgresql, not {parsed.drivername}", code="invalid-database-url"
    )


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        pool_size=5,
        hide_parameters=True,  # secrets are among them, and a message goes into the log
        json_deserializer=_read_json,
        max_overflow=20,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _record: Any) -> None:
        # We send BEGIN ourselves (below): the driver sends it late and never as BEGIN IMMEDIATE.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}").close()
        # SQLite's own knows the letters of ASCII only; searches and orders are to be those of PostgreSQL.
        connection.create_function("lower", 1, _lower, deterministic=True)
        _write_ahead(connection)
        for pragma in (
            "foreign_keys=ON",
            "synchronous=FULL",  # a write that was answered with 2xx survives a power cut
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once with "database is locked" when another
        # wrote in between, whatever the timeout. Taking the write lock at BEGIN waits for it instead.
        read_only = bool(connection.get_execution_options().get("tunefarm_read_only", False))
        connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on. Only the first connection ever changes anything; the file remembers it.

    SQLite does not wait for another process that turns it on at the same time, whatever the timeout: it answers "locked".
    """
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
