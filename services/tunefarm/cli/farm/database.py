"""``tunefarm db``: upgrade and check the database's schema."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Home
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.output_file import output_file

app = group("db", "Upgrade, check and back up the database.")

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="TUNEFARM_DATABASE_URL",
        metavar="URL",
        help="sqlite:////path/to/file.db or postgresql://user@host/name; by default, the database of the farm on "
        "this machine.",
    ),
]


@command(app, "upgrade")
def upgrade_database(
    out: Output,
    worker_role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            help="Give this role of PostgreSQL what workers need, and no API keys, secrets of webhooks or audit log.",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    home: Home = None,
) -> None:
    """Upgrade the schema to this version of tunefarm. Safe to repeat, and to run from several machines at once."""
    from tunefarm_db.engine import make_engine
    from tunefarm_db.schema import current, head, upgrade
    from tunefarm_db.worker_role import grant_to_worker

    url = _url(database_url, home)
    engine = make_engine(url)
    try:
        before = current(engine)
        upgrade(url)
    finally:
        engine.dispose()
    if worker_role is not None:
        grant_to_worker(url, worker_role)
    role = f"; {worker_role} has a worker's rights" if worker_role is not None else ""
    went = (
        f"the schema is already at {before}"
        if before == head()
        else f"the schema went from {before or 'nothing'} to {head()}"
    )
    out.result({"before": before, "current": head(), "worker_role": worker_role}, f"{went}{role}")


@command(app, "current")
def show_revision(out: Output, database_url: DatabaseUrl = None, home: Home = None) -> None:
    """Show the database's schema version and the one that this tunefarm needs."""
    from tunefarm_db.engine import make_engine
    from tunefarm_db.schema import current, head

    engine = make_engine(_url(database_url, home))
    try:
        present = current(engine)
    finally:
        engine.dispose()
    if out.json:
        out.data({"current": present, "head": head()})
    else:
        out.text(f"current {present or 'nothing'}")
        out.text(f"needed  {head()}")


@command(app, "check")
def check_database(out: Output, database_url: DatabaseUrl = None, home: Home = None) -> None:
    """Check that the database answers and has the schema that this version of tunefarm needs."""
    from tunefarm_db.engine import make_engine
    from tunefarm_db.schema import check_schema, head

    engine = make_engine(_url(database_url, home))
    try:
        check_schema(engine)
    finally:
        engine.dispose()
    out.result(
        {"ok": True, "current": head()}, f"the schema is at {head()}, the version that this release needs"
    )


@command(app, "backup")
def back_up_database(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE.db", help="Path of the copy. Must not exist.")],
    database_url: DatabaseUrl = None,
    home: Home = None,
) -> None:
    """Copy an SQLite database to a file, consistently even if the farm is running. For PostgreSQL use pg_dump."""
    import sqlite3

    from tunefarm_db.engine import parse_url

    url = parse_url(_url(database_url, home))
    if url.get_backend_name() != "sqlite" or url.database is None:
        raise InvalidInputError(
            "this command copies only SQLite databases: use pg_dump for PostgreSQL",
            code="wrong-database",
        )
    source_path = Path(url.database)
    if not source_path.is_file():
        raise InvalidInputError(f"{source_path}: there is no such database", code="no-database")
    if file.exists():
        raise FileExistsError(17, "exists already", str(file))
    with (
        output_file(file) as temporary,
        closing(sqlite3.connect(f"file:{source_path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(temporary)) as copy,
    ):
        source.backup(copy)
    size_bytes = file.stat().st_size
    out.result({"backup": str(file), "size_bytes": size_bytes}, f"{file}  {quantities.size(size_bytes)}")


def _url(database_url: str | None, home: Path | None) -> str:
    if database_url is not None:
        return database_url
    from tunefarm.cli.base.local_farm import database_url as of_home

    return of_home(home)
