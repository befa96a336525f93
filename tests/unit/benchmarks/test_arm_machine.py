"""How long a program of an emulated machine may take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.arm.machine import CORTEX_A72, ArmMachine, HungError
from repository import ROOT

HERE = """
import sys
from pathlib import Path
from benchmarks.arm.machine import CORTEX_A72, ArmMachine
class Here(ArmMachine):
    python = Path(sys.executable)
"""
ENDS = "import time; print('begins'); time.sleep(2); print('ends')"


class Here(ArmMachine):
    """This machine instead of an emulated one."""

    python = Path(sys.executable)  # type: ignore[assignment]


def test_a_program_that_computes_without_end_is_told_from_one_that_waits(tmp_path: Path) -> None:
    machine = Here(tmp_path, CORTEX_A72)
    with pytest.raises(HungError, match="did not end within 3 s, in which it computed for") as loop:
        machine.run("-c", "while True: pass", timeout_sec=3.0)
    with pytest.raises(HungError) as wait:
        machine.run("-c", "import time; time.sleep(60)", timeout_sec=3.0)
    assert wait.value.cpu_sec < loop.value.cpu_sec


def test_time_in_which_all_stands_still_does_not_count(tmp_path: Path) -> None:
    program = f"{HERE}\nprint(Here(Path({str(tmp_path)!r}), CORTEX_A72).run('-c', {ENDS!r}, timeout_sec=6.0))"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    time.sleep(1.0)
    os.killpg(child.pid, signal.SIGSTOP)
    time.sleep(8.0)
    os.killpg(child.pid, signal.SIGCONT)
    output, _ = child.communicate(timeout=120.0)
    assert (child.returncode, output.split()) == (0, ["begins", "ends"])
