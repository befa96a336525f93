"""Database URLs and SQLite's settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
        pragmas = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "busy_timeout": 15000, "foreign_keys": 1, "synchronous": 2}


def test_many_may_be_the_first_to_open_a_file(tmp_path: Path) -> None:
    """SQLite refuses at once, about one time in a hundred, if two connections turn on the write-ahead log together."""

    def open_it(url: str) -> None:
        engine = make_engine(url)
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
        engine.dispose()

    with ThreadPoolExecutor(8) as pool:
        for number in range(100):
            list(pool.map(open_it, [f"sqlite:///{tmp_path / str(number)}.db"] * 8))
