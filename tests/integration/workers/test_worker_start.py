"""A worker that could not sign does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("content", [None, "no key"])
def test_a_key_that_cannot_be_read(tmp_path: Path, content: str | None) -> None:
    key = tmp_path / "key.pem"
    if content is not None:
        key.write_text(content)
    variables = {
        **os.environ,
        "TUNEFARM_DATABASE_URL": f"sqlite:///{tmp_path / 'farm.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(tmp_path / "store"),
        "TUNEFARM_SIGNING_KEY": str(key),
    }
    command = [sys.executable, "-m", "tunefarm_workers.worker"]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert "TUNEFARM_SIGNING_KEY" in ran.stderr
    assert "tunefarm signing create" in ran.stderr
