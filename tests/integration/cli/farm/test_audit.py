"""``tunefarm audit`` against the real API."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_process import running_api
from waiting import wait_until

from tunefarm_text.audit_chain import FIELDS, START, chained_hash


def test_list_export_and_verify(run: Any, farm: Any, tmp_path: Path) -> None:
    run("keys", "create", "ci", "-s", "read", "-o", tmp_path / "key")
    (entry,) = [
        json.loads(line)
        for line in run("audit", "list", "--action", "key-created", "-n", 1, "--json").stdout.splitlines()
    ]
    assert entry["details"] == {"name": "ci", "scopes": ["read"]}
    assert entry["actor"] == farm.api_key.split("_")[1]
    assert "key-created" in run("audit", "list", "--of", entry["subject"]).stdout
    assert run("audit", "list", "--key", "nobody", "--json").stdout == ""

    file = tmp_path / "audit.jsonl"
    run("audit", "export", file)
    checked = json.loads(run("audit", "verify", file, "--json").stdout)
    assert checked["broken"] is None
    head = f"{checked['seq']}:{checked['hash']}"
    run("audit", "verify", "--head", head)
    run("audit", "verify", file, "--head", head)

    lines = file.read_text().splitlines()
    second = json.loads(lines[1])
    part = tmp_path / "part.jsonl"
    run("audit", "export", part, "--after", 2)
    assert "entry 1 is missing" in run("audit", "verify", part, code=1).stderr
    run("audit", "verify", part, "--after", f"2:{second['hash']}", "--head", head)
    assert "broken at entry 3" in run("audit", "verify", part, "--after", f"2:{'ab' * 32}", code=1).stderr
    changed = {**json.loads(lines[1]), "actor": "somebody else"}
    file.write_text("\n".join([lines[0], json.dumps(changed), *lines[2:]]))
    assert "broken at entry 2" in run("audit", "verify", file, code=1).stderr
    file.write_text("\n".join(lines[:-1]))
    run("audit", "verify", file)
    assert f"ends before entry {len(lines)}" in run("audit", "verify", file, "--head", head, code=1).stderr


@pytest.mark.exhaustive
def test_bad_input(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    for text in ("{", "[]", "{}", "1", '{"seq": "x", "hash": 1}'):
        file.write_text(text)
        assert "line 1 is not an entry" in run("audit", "verify", file, code=2).stderr
    run("audit", "verify", "--head", "nonsense", code=2)
    run("audit", "verify", file, "--after", "nonsense", code=2)
    run("audit", "verify", "--after", f"2:{'ab' * 32}", code=2)
    run("audit", "verify", file, "--after", f"2:{'ab' * 32}", "--head", f"1:{'ab' * 32}", code=2)
    run("audit", "verify", tmp_path / "none", code=2)
    run("audit", "list", "--action", "nonsense", code=2)
    run("keys", "create", "ci", "-s", "read", "-o", tmp_path / "key")
    run("audit", "list", "--api-key-file", tmp_path / "key", TUNEFARM_API_KEY=None, code=5)


def age_log(database: Path, days: float) -> None:
    """Write the log of a stopped farm anew, as if it were older."""
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM audit_log ORDER BY seq").fetchall()
        (trigger,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'audit_log_no_update'"
        ).fetchone()
        connection.execute("DROP TRIGGER audit_log_no_update")
        previous = START
        for row in rows:
            entry = {name: row[name] for name in FIELDS} | {"details": json.loads(row["details"])}
            entry["at"] -= days * 86400
            previous = chained_hash(previous, entry)
            change = "UPDATE audit_log SET at = ?, hash = ? WHERE seq = ?"
            connection.execute(change, (entry["at"], previous, row["seq"]))
        connection.execute(trigger)


def test_prune(run: Any, tmp_path: Path) -> None:
    folder, file, again = tmp_path / "own", tmp_path / "old.jsonl", tmp_path / "again.jsonl"
    day = (datetime.now(UTC) - timedelta(days=31)).strftime("%Y-%m-%d")
    with running_api(folder) as api:
        with api.client() as client:
            for name in ("a", "b"):
                client.post("/v1/keys", json={"name": name, "scopes": ["read"]}).raise_for_status()
        env = {"TUNEFARM_URL": api.url, "TUNEFARM_API_KEY": api.key}
        young = run("audit", "prune", "--before", "2100-01-01", "--export", tmp_path / "y", code=2, **env)
        assert "younger than 30 days" in young.stderr
        assert "no entry is older" in run("audit", "prune", "--before", day, "--export", again, **env).stdout
        assert api.stop() == 0
    age_log(folder / "tunefarm.db", 40)
    with running_api(folder) as api:
        env = {"TUNEFARM_URL": api.url, "TUNEFARM_API_KEY": api.key}
        run("audit", "verify", **env)
        pruned = json.loads(run("audit", "prune", "--before", day, "--export", file, "--json", **env).stdout)
        assert pruned["count"] >= 3
        assert pruned["export"] == str(file)
        run("audit", "verify", file, **env)
        checked = json.loads(run("audit", "verify", "--head", pruned["to"], "--json", **env).stdout)
        assert (checked["broken"], checked["pruned"]) == (None, pruned["count"])
        assert f"{pruned['count']} earlier entries were pruned" in run("audit", "verify", **env).stdout
        again.unlink()
        run("audit", "export", again, **env)
        run("audit", "verify", again, **env)
        entry = json.loads(
            run("audit", "list", "--action", "audit-pruned", "--json", **env).stdout.splitlines()[0]
        )
        assert f"{entry['details']['to']}:{entry['details']['hash']}" == pruned["to"]
        refused = run("audit", "prune", "--before", day, "--export", file, code=2, **env)
        assert "exists" in refused.stderr
        run("audit", "prune", "--before", "yesterday", "--export", tmp_path / "n", code=2, **env)


@pytest.mark.exhaustive
def test_retention_prunes_the_log(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    with running_api(folder) as api:
        assert api.stop() == 0
    age_log(folder / "tunefarm.db", 40)
    with running_api(folder, TUNEFARM_KEEP_AUDIT_DAYS="35") as api:
        env = {"TUNEFARM_URL": api.url, "TUNEFARM_API_KEY": api.key}

        def is_pruned() -> bool:
            checked = json.loads(run("audit", "verify", "--json", **env).stdout)
            return bool(checked["pruned"])

        wait_until(is_pruned, "the reconciler to prune the log")
