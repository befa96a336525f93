"""Upgrade the schema, and check its version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import translated
from tunefarm_tuning.core.errors import ConflictError

_LOCK = 0x74756E65  # "tune": our number among PostgreSQL's advisory locks


def upgrade(url: str, revision: str = "head") -> None:
    """Upgrade the database to `revision`, in one transaction. Any number of processes may call it at once.

    Raises:
        TransientError: If the database is away.
    """
    with locked(url) as connection:
        command.upgrade(config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Downgrade the database to `revision` (``"base"``: no tables). Data of later revisions is lost."""
    with locked(url) as connection:
        command.downgrade(config(connection), revision)


def head() -> str:
    """Return the revision that this code was written for."""
    revision = ScriptDirectory.from_config(config(None)).get_current_head()
    assert revision is not None
    return revision


def current(engine: Engine) -> str | None:
    """Return the database's revision; None if it has no schema.

    Raises:
        TransientError: If the database is away.
    """
    try:
        with engine.connect() as connection:
            # Otherwise it would wait for whoever writes.
            reading = connection.execution_options(tunefarm_read_only=True, postgresql_readonly=True)
            return MigrationContext.configure(reading).get_current_revision()
    except DBAPIError as error:
        raise translated(error) from error


def check_schema(engine: Engine) -> None:
    """Check that the database has this code's schema.

    Raises:
        ConflictError: ``schema-outdated`` if it has another; the fix is ``tunefarm db upgrade``.
    """
    present, wanted = current(engine), head()
    if present != wanted:
        raise ConflictError(
            f"the database's schema is at {present or 'nothing'}, this tunefarm needs {wanted}: "
            "run `tunefarm db upgrade`",
            code="schema-outdated",
            current=present,
            head=wanted,
        )


def revisions() -> frozenset[str]:
    """Return every revision that this code can upgrade."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(config(None)).walk_revisions())


def config(connection: Connection | None) -> Config:
    """Return Alembic's configuration, for this connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """Open the one transaction that may change the schema; any other that wants to waits.

    Raises:
        TransientError: If the database is away.
    """
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            # SQLite's BEGIN IMMEDIATE has let in one process only. A migration that cannot get a table's lock soon
            # must fail rather than queue every request behind itself.
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
                connection.execute(text("SET LOCAL lock_timeout = '10s'"))
            yield connection
    except DBAPIError as error:
        raise translated(error) from error
    finally:
        engine.dispose()
