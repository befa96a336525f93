"""``tunefarm db`` on real SQLite files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tunefarm.cli.main import make_app
from tunefarm_db.schema import head

APP = make_app()


def tunefarm(*arguments: object) -> Result:
    return CliRunner().invoke(APP, [str(a) for a in arguments], env={"TUNEFARM_DATABASE_URL": None})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/farm.db"


def test_from_nothing_to_the_newest_schema(url: str) -> None:
    checked = tunefarm("db", "check", "--database-url", url)
    assert checked.exit_code == 3
    assert "tunefarm db upgrade" in checked.stderr

    current = tunefarm("db", "current", "--database-url", url, "--json")
    assert json.loads(current.stdout) == {"current": None, "head": head()}

    upgraded = tunefarm("db", "upgrade", "--database-url", url, "--json")
    assert upgraded.exit_code == 0, upgraded.output
    assert json.loads(upgraded.stdout) == {"before": None, "current": head(), "worker_role": None}
    assert "already" in tunefarm("db", "upgrade", "--database-url", url).stdout
    assert tunefarm("db", "check", "--database-url", url).exit_code == 0


def test_a_backup_is_a_database(url: str, tmp_path: Path) -> None:
    tunefarm("db", "upgrade", "--database-url", url)
    copy = tmp_path / "copy.db"
    done = tunefarm("db", "backup", copy, "--database-url", url, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["backup"] == str(copy)
    with closing(sqlite3.connect(copy)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "records" in names
    assert tunefarm("db", "check", "--database-url", f"sqlite:///{copy}").exit_code == 0

    again = tunefarm("db", "backup", copy, "--database-url", url)
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_sqlite_has_no_roles(url: str) -> None:
    refused = tunefarm("db", "upgrade", "--worker-role", "worker", "--database-url", url)
    assert refused.exit_code == 2
    assert "leave --worker-role out for SQLite" in refused.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "name a file"),
        ("mysql://user:pass-word@host/x", "must be sqlite or postgresql"),
        ("nonsense", "cannot be read"),
    ],
)
def test_urls_that_do_not_work(url: str, words: str) -> None:
    result = tunefarm("db", "current", "--database-url", url)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "pass-word" not in result.output


def test_a_backup_of_nothing(tmp_path: Path) -> None:
    missing = tunefarm(
        "db", "backup", tmp_path / "copy.db", "--database-url", f"sqlite:///{tmp_path}/none.db"
    )
    assert missing.exit_code == 2
    other = tunefarm("db", "backup", tmp_path / "copy.db", "--database-url", "postgresql://host/name")
    assert other.exit_code == 2
    assert "pg_dump" in other.stderr
    assert list(tmp_path.iterdir()) == []
