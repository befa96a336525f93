"""``tunefarm worker`` and ``tunefarm device join`` become the part's own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("TUNEFARM_")}


def tunefarm(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tunefarm", *arguments],
        env={**PLAIN, **env},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.exhaustive
def test_a_worker_without_settings_says_which() -> None:
    done = tunefarm("worker")
    assert done.returncode == 2
    assert "TUNEFARM_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_gets_its_options() -> None:
    done = tunefarm("worker", "--queues", "import,nothing")
    assert done.returncode == 2
    assert "python -m tunefarm_workers.worker" in done.stderr
    assert "the queues are" in done.stderr


def test_a_device_without_a_farm_says_so() -> None:
    done = tunefarm("device", "join")
    assert done.returncode == 2
    assert "TUNEFARM_URL" in done.stderr


def test_a_device_gets_its_options(tmp_path: Path) -> None:
    options = ["--url", "http://127.0.0.1:1", "--work-dir", str(tmp_path), "--name", "not a name"]
    done = tunefarm("device", "join", *options, "--device-key", "lab", TUNEFARM_API_KEY="tfk_x")
    assert done.returncode == 2
    assert "--name must be" in done.stderr
    done = tunefarm("device", "join", "--url", "http://127.0.0.1:1", "--api-key-file", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "cannot read the API key's file" in done.stderr
