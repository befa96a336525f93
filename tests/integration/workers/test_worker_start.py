"""A worker that could not sign does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def started(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        "TUNEFARM_DATABASE_URL": f"sqlite:///{folder / 'farm.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(folder / "store"),
        **environment,
    }
    command = [sys.executable, "-m", "tunefarm_workers.worker"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)


def test_no_key_where_one_is_required(tmp_path: Path) -> None:
    ran = started(tmp_path, TUNEFARM_REQUIRE_SIGNATURES="true")
    assert ran.returncode == 2
    assert "tunefarm_signing_key is needed" in ran.stderr.lower()


@pytest.mark.parametrize("content", [None, "no key"])
def test_a_key_that_cannot_be_read(tmp_path: Path, content: str | None) -> None:
    key = tmp_path / "key.pem"
    if content is not None:
        key.write_text(content)
    ran = started(tmp_path, TUNEFARM_SIGNING_KEY=str(key))
    assert ran.returncode == 2
    assert "TUNEFARM_SIGNING_KEY" in ran.stderr
    assert "tunefarm signing create" in ran.stderr
