"""The API makes the signing key where it is told to, and otherwise needs the public keys alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunefarm_app.identity.signing import create_signing_key, public_keys, public_path


def started(folder: Path, key: Path, *options: str) -> tuple[int | None, str]:
    """Start the API; return its exit code, None if it runs, and what it wrote."""
    variables = {
        **os.environ,
        "TUNEFARM_DATABASE_URL": f"sqlite:///{folder / 'farm.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(folder / "store"),
        "TUNEFARM_SIGNING_KEY": str(key),
    }
    command = [sys.executable, "-m", "tunefarm_api", "--port", "0", "--migrate", *options]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as api:
        assert api.stdout is not None
        if '"url"' in api.stdout.readline():
            api.terminate()
            api.communicate(timeout=60)
            return None, ""
        _, errors = api.communicate(timeout=60)
        return api.returncode, errors


def test_it_is_made_when_asked_for(tmp_path: Path) -> None:
    key = tmp_path / "signing" / "key.pem"
    code, errors = started(tmp_path, key)
    assert code == 2
    assert "TUNEFARM_SIGNING_KEY" in errors
    assert not key.exists()
    assert started(tmp_path, key, "--make-signing-key") == (None, "")
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(public_keys(key)) == 1


@pytest.mark.exhaustive
def test_it_is_made_once(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    create_signing_key(key)
    before = key.read_bytes()
    assert started(tmp_path, key, "--make-signing-key") == (None, "")
    assert key.read_bytes() == before
    assert len(public_keys(key)) == 1


@pytest.mark.exhaustive
def test_the_public_keys_are_enough(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    create_signing_key(key)
    key.unlink()
    assert started(tmp_path, key) == (None, "")
    public_path(key).write_text("nonsense")
    assert started(tmp_path, key)[0] == 2
