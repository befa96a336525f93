"""``tunefarm audit`` against the real API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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


def test_bad_input(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    for text in ("{", "[]", "{}", "1", '{"seq": "x", "hash": 1}'):
        file.write_text(text)
        assert "line 1 is no entry" in run("audit", "verify", file, code=2).stderr
    run("audit", "verify", "--head", "nonsense", code=2)
    run("audit", "verify", file, "--after", "nonsense", code=2)
    run("audit", "verify", "--after", f"2:{'ab' * 32}", code=2)
    run("audit", "verify", file, "--after", f"2:{'ab' * 32}", "--head", f"1:{'ab' * 32}", code=2)
    run("audit", "verify", tmp_path / "none", code=2)
    run("audit", "list", "--action", "nonsense", code=2)
    run("keys", "create", "ci", "-s", "read", "-o", tmp_path / "key")
    run("audit", "list", "--api-key-file", tmp_path / "key", TUNEFARM_API_KEY=None, code=5)
