"""A stopped process whose parent is gone wakes to see it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

CHILD = """
import os, sys, threading
from tunefarm_tuning.process.lifeline import wake_at_end
if sys.argv[1] == "tied":
    wake_at_end(0)
for _ in range(16):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.exit(3 if os.read(0, 1) == b"" else 4)
"""


def exit_code_of_stopped(how: str, timeout_sec: float) -> int:
    """Stop a child, end its standard input at once, and return how it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(signal.SIGSTOP)
            child.stdin.close()
            return child.wait(timeout_sec)
        finally:
            child.kill()


def test_the_end_of_its_standard_input_wakes_a_stopped_process() -> None:
    for _ in range(5):
        assert exit_code_of_stopped("tied", 60) == 3


def test_without_the_tie_it_stays_stopped() -> None:
    """Its parent lives, so that the kernel has no orphans to wake."""
    with pytest.raises(subprocess.TimeoutExpired):
        exit_code_of_stopped("loose", 1)
