"""A Python on an emulated Arm machine by one command, for those who have no board."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from emulated_arm import CORTEX_A72, emulated_machine

PROGRAM = "import os, platform, tunefarm; print(platform.machine(), os.environ['TUNEFARM_ENROLMENT_TOKEN'])"


def board(
    *arguments: str, environment: dict[str, str], timeout_sec: float = 600.0
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.arm.board", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_sec,
        check=False,
    )


def test_a_program_runs_on_an_emulated_board_with_the_settings_of_tunefarm() -> None:
    emulated_machine(CORTEX_A72)
    ended = board("cortex-a72", "-c", PROGRAM, environment={"TUNEFARM_ENROLMENT_TOKEN": "tfk_a"})
    assert (ended.returncode, ended.stdout) == (0, "aarch64 tfk_a\n"), ended.stderr


def test_where_no_machine_can_be_made_the_command_says_why(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    ended = board("max", "-c", "pass", environment=environment)
    assert (ended.returncode, ended.stderr) == (1, "no emulated Arm machine: there is no apt-get\n")
