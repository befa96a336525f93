"""``tunefarm keys`` against the real API."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client, ConflictError


def test_keys_come_and_go(run: Any, farm: Any, tmp_path: Path) -> None:
    key = run("keys", "create", "ci", "--scope", "read", "-s", "write").stdout.strip()
    assert key.startswith("tfk_")
    run("models", "list", TUNEFARM_API_KEY=key)
    run("keys", "list", TUNEFARM_API_KEY=key, code=5)
    listed = json.loads(run("keys", "list", "--json").stdout)
    (created,) = [entry for entry in listed if entry["name"] == "ci"]
    assert created["id"] in key
    assert key not in run("keys", "list").stdout
    assert "is revoked" in run("keys", "revoke", created["id"]).stdout
    run("models", "list", TUNEFARM_API_KEY=key, code=5)
    run("keys", "revoke", "none", code=3)
    assert "last key with the scope admin" in run("keys", "revoke", farm.api_key.split("_")[1], code=3).stderr


def test_a_key_goes_into_a_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    result = run("keys", "create", "node", "-s", "device", "-o", file, "--json")
    assert json.loads(result.stdout)["key"] is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "tfk_" not in result.output
    run("models", "list", "--api-key-file", file, TUNEFARM_API_KEY=None, code=5)  # it is for devices
    before = file.read_text()
    run("keys", "create", "node", "-s", "device", "-o", file, code=2)  # what is there stays
    assert file.read_text() == before
    run("keys", "create", "odd", "-s", "everything", "-o", tmp_path / "odd", code=2)
    assert not (tmp_path / "odd").exists()
    assert len(json.loads(run("keys", "list", "--json").stdout)) == 2


def test_keys_expire_and_rotate(run: Any, tmp_path: Path) -> None:
    run("keys", "create", "ci", "-s", "read", "--expires", "90d", "-o", tmp_path / "first")
    (first,) = [key for key in json.loads(run("keys", "list", "--json").stdout) if key["name"] == "ci"]
    assert first["expires_at"] - first["created_at"] == 90 * 86400
    second = run("keys", "rotate", first["id"], "--overlap", "30m").stdout.strip()
    old, new = [key for key in json.loads(run("keys", "list", "--json").stdout) if key["name"] == "ci"]
    assert old["expires_at"] < new["expires_at"]
    assert new["scopes"] == ["read"]
    for key in (second, (tmp_path / "first").read_text().strip()):
        run("models", "list", TUNEFARM_API_KEY=key)
    run("keys", "rotate", first["id"], "--overlap", "0m")
    run("models", "list", TUNEFARM_API_KEY=(tmp_path / "first").read_text().strip(), code=5)
    assert "not a duration" in run("keys", "rotate", first["id"], "--overlap", "soon", code=2).stderr
    assert "can be rotated" in run("keys", "rotate", first["id"], code=3).stderr


def test_keys_from_python(client: Client) -> None:
    created = client.keys.create("ci", scopes=["read"])
    assert created.key not in repr(created)
    assert [key.id for key in client.keys.list()][-1] == created.id
    assert client.keys.revoke(created.id).revoked_at is not None
    admin = next(key for key in client.keys.list() if key.scopes == ("admin",))
    with pytest.raises(ConflictError) as caught:
        client.keys.revoke(admin.id)
    assert caught.value.code == "last-admin-key"


def test_limits(run: Any, tmp_path: Path) -> None:
    run(
        "keys",
        "create",
        "ci",
        "-s",
        "write",
        "--max-bytes",
        5_000_000,
        "--max-open-jobs",
        2,
        "-o",
        tmp_path / "key",
    )
    (key,) = [key for key in json.loads(run("keys", "list", "--json").stdout) if key["name"] == "ci"]
    assert key["limits"] == {"bytes": 5_000_000, "open_jobs": 2, "device_minutes": None, "priority": None}
    assert "open jobs 2" in run("keys", "list").stdout
    assert "priority -1" in run("keys", "limit", key["id"], "--max-priority", -1).stdout
    assert "no limits" in run("keys", "limit", key["id"]).stdout
    run("keys", "limit", "none", "--max-bytes", 1, code=3)
    run("keys", "limit", key["id"], "--max-bytes", -1, code=2)
    run("keys", "limit", key["id"], "--max-priority", 101, code=2)
