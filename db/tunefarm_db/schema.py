"""Upgrade the schema, and check its version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import translated
from tunefarm_tuning.core.errors import ConflictError, TransientError

_LOCK = 0x74756E65  # "tune": our number among PostgreSQL's advisory locks
_LOCK_SEC = 60
_TABLE_LOCK_SEC = 10
_LOCK_NOT_AVAILABLE = "55P03"
_HOLDERS = text(
    "SELECT DISTINCT pid, usename FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted AND pid <> pg_backend_pid() "
    "AND datname = current_database() AND (locktype = 'relation' OR locktype = 'advisory' AND objid = :lock) ORDER BY pid"
)


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
    """Open the one transaction that may change the schema; any other that wants to waits, for a minute.

    Raises:
        TransientError: If the database is away; ``schema-locked`` if somebody else has a lock that it needs.
    """
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            if (
                connection.dialect.name == "postgresql"
            ):  # SQLite's BEGIN IMMEDIATE has let in one process only
                _take_turn(connection)
            yield connection
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            raise _schema_locked(engine) from error
        raise translated(error) from error
    finally:
        engine.dispose()


def _take_turn(connection: Connection) -> None:
    """Take the lock of whoever changes the schema.

    It is the row of the schema's version, which workers cannot lock (`worker_role`). A database without a schema has none: there
    it is an advisory lock, which every role can hold.
    """
    connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_SEC}s'"))
    has_version = connection.execute(text("SELECT to_regclass('alembic_version') IS NOT NULL")).scalar()
    if (
        not has_version
        or connection.execute(text("SELECT 1 FROM alembic_version FOR UPDATE")).first() is None
    ):
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    # A migration that cannot get a table's lock soon must fail rather than queue every request behind itself.
    connection.execute(text(f"SET LOCAL lock_timeout = '{_TABLE_LOCK_SEC}s'"))


def _schema_locked(engine: Engine) -> TransientError:
    holders = ""
    with suppress(DBAPIError), engine.connect() as connection:
        rows = connection.execute(_HOLDERS, {"lock": _LOCK}).all()
        holders = ", ".join(f"process {pid} of the role {role}" for pid, role in rows)
    return TransientError(
        f"the schema cannot be changed: somebody holds a lock on it ({holders or 'no longer'}); stop the farm's workers, or end what "
        "holds it with SELECT pg_terminate_backend(PID), and try again",
        code="schema-locked",
    )
