"""Processes that hold secrets cannot be looked into by others of their user: the attack that a child without a sandbox would make."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

SPY = """
import ctypes, json, os, sys
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
seen = {}
for name in ("environ", "mem", "maps"):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb") as file:
            seen[name] = len(file.read(1) if name != "mem" else b"opened")
    except OSError as error:
        seen[name] = type(error).__name__
seen["traced"] = libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0
if seen["traced"]:
    os.waitpid(int(sys.argv[1]), 0x40000000)
    libc.ptrace(17, int(sys.argv[1]), 0, 0)
print(json.dumps(seen))
"""
OPEN = {"environ": 1, "mem": 6, "maps": 1, "traced": True}
CLOSED = {"environ": "PermissionError", "mem": "PermissionError", "maps": "PermissionError", "traced": False}


_libc = ctypes.CDLL(None)


def without_powers() -> None:
    """Let the new process be an ordinary user, even if its number is 0: root's powers would open everything."""
    _libc.prctl(28, 3, 0, 0, 0)  # PR_SET_SECUREBITS: no powers come with root's number
    _libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def look_into(pid: int) -> dict[str, object]:
    """Return what another process of this user sees of a process."""
    command = [sys.executable, "-c", SPY, str(pid)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=without_powers)
    seen: dict[str, object] = json.loads(ran.stdout)
    return seen


@pytest.fixture(autouse=True)
def traces_are_let_through() -> None:
    """Where a user may not trace even its own processes, this file has nothing to show."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=without_powers) as plain:  # noqa: PLW1509
        seen = look_into(plain.pid)
        assert plain.stdin is not None
        plain.stdin.close()
    if seen != OPEN:
        pytest.skip(f"a plain process shows {seen}")


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "tunefarm_api", "--port=0", "--migrate"],
        ["-m", "tunefarm_workers.worker", "--concurrency=1"],
        ["-m", "tunefarm_workers.device", "--url=http://127.0.0.1:1", "--token=t", "--name=n"],
        ["-m", "tunefarm.embedded", "--with-stdin"],
    ],
    ids=["api", "worker", "device", "serve"],
)
def test_nobody_looks_into_what_holds_secrets(command: list[str], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TUNEFARM_DATABASE_URL": f"sqlite:///{tmp_path / 'db'}",
        "TUNEFARM_BROKER_URL": "redis://:password@127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(tmp_path / "store"),
        "TUNEFARM_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=without_powers,  # noqa: PLW1509
    ) as process:
        try:
            wait_until(lambda: look_into(process.pid) == CLOSED, "it to close itself", every_sec=0.2)
        finally:
            process.terminate()
