"""A child process, which ends with the supervisor's process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tunefarm.embedded import tether
from tunefarm_tuning.core.untrusted_text import clean

_OUTPUT_BYTES = 1 << 20
_TRACKER_SEC = 2.0
_TRACKERS = ("semaphore_tracker", "resource_tracker")
"""Helpers of billiard and multiprocessing: if they are killed together with their users, files stay in /dev/shm."""


class TetheredChild:
    """A process in its own session; its output goes to a log.

    Ownership: when the supervisor is gone the kernel kills the child's process group (`tether`).
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, log: int, log_path: Path
    ) -> None:
        self._log_path = log_path
        self._log_start = os.lseek(log, 0, os.SEEK_END)
        self.started = time.monotonic()
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", tether.__file__, str(lifeline), *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lifeline],
            )
        except OSError:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
            os.close(log)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code (or minus the signal's number); None while it runs. It is not reaped before `bury`."""
        if self._process.returncode is None:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self._process.returncode

    def output(self) -> str:
        """Return its output, of a long output the last part."""
        with contextlib.suppress(OSError), self._log_path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _OUTPUT_BYTES))
            return file.read(_OUTPUT_BYTES).decode("utf-8", "replace")
        return ""

    def last_lines(self, count: int = 5) -> str:
        """Return the end of its output, cleaned for a message. Log lines that only say what went well are left out."""
        lines = [line for line in self.output().splitlines() if line.strip() and not _is_routine(line)]
        return "\n".join(clean(line, 300) for line in lines[-count:])

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process, which must end its own children."""
        if self.exit_code() is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it ended in time."""
        until = time.monotonic() + seconds
        while self.exit_code() is None:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def bury(self) -> None:
        """Kill the rest of its process group, and reap the process."""
        # Before the leader is reaped: until then no other group can get the number.
        if self._process.returncode is None:
            trackers = self._kill_group_but_trackers()
            until = time.monotonic() + _TRACKER_SEC
            while time.monotonic() < until and any(
                tracker.is_running() and not _is_dead(tracker) for tracker in trackers
            ):
                time.sleep(0.02)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _kill_group_but_trackers(self) -> list[psutil.Process]:
        """Kill the group, except helpers that remove named semaphores after all their users have ended."""
        trackers = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getpgid(process.pid) != self.pid or _is_dead(process):
                    continue
                if any(word in " ".join(process.cmdline()) for word in _TRACKERS):
                    trackers.append(process)
                else:
                    process.kill()
        return trackers


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _is_routine(line: str) -> bool:
    """Return whether a line of a log is JSON and tells no warning or error."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("level") in ("debug", "info")
