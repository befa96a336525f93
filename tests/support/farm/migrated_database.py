"""Databases with their schema. The SQLite file is migrated once per process and copied, since that takes 0.1 s."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tunefarm_db import schema


def upgrade(url: str) -> None:
    """Give a database its schema, as `schema.upgrade` does; one that does not exist yet gets a copy."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.exists():
        path.write_bytes(_migrated_sqlite())
    else:
        schema.upgrade(url)


@cache
def _migrated_sqlite() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        schema.upgrade(f"sqlite:///{path}")
        assert [file.name for file in Path(folder).iterdir()] == [path.name], "nothing waits in a journal"
        return path.read_bytes()
