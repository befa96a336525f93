"""Database URLs and SQLite's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tunefarm_db.engine import make_engine, parse_url
from tunefarm_tuning.core.errors import InvalidInputError


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_means_psycopg_3(scheme: str) -> None:
    if scheme == "postgres":
        url = parse_url("postgres://u:p@h/n")
    else:
        url = parse_url(f"{scheme}://u:p@h/n")
    assert (url.drivername, url.host, url.password) == ("postgresql+psycopg", "h", "p")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://u:secret@h/n",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory",
    ],
)
def test_other_urls_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        make_engine(url)
    assert refused.value.code == "invalid-database-url"
    assert "secret" not in refused.value.message


def test_sqlite_is_opened_for_many_processes(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")
        }
    engine.dispose()
    assert found == {"journal_mode": "wal", "busy_timeout": 15000, "foreign_keys": 1, "synchronous": 2}
