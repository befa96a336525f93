"""Supervisors of toy parts, and checks that they leave no processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import wait_until

PATIENCE_SEC = 120.0


class ToyFarm:
    def __init__(self, home: Path, parts: list[dict[str, Any]]) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "toy_farm.py"), str(home), json.dumps(parts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.events.append(json.loads(line))

    def kinds(self, part: str = "") -> list[str]:
        return [event["kind"] for event in self.events if event["part"] == part]

    def order(self, kind: str) -> list[str]:
        return [event["part"] for event in self.events if event["kind"] == kind]

    def wait_for(self, kind: str, part: str = "", count: int = 1) -> None:
        wait_until(
            lambda: self.kinds(part).count(kind) >= count, lambda: f"{count} x {kind} {part}: {self.events}"
        )

    def log(self, part: str) -> str:
        return (self.home / "logs" / f"{part}.log").read_text()

    def pids(self, part: str) -> list[int]:
        """Return the process ids that the part wrote: its own, then those of its children."""
        return [int(line.split("=")[1]) for line in self.log(part).splitlines() if line.startswith("pid=")]

    def all_pids(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_SEC)
        self._reader.join(PATIENCE_SEC)  # its last words
        return code

    def close(self) -> None:
        """End all processes, including those in sessions of their own."""
        below = (
            psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        )
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SEC)
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):  # it knows a process id that was given anew
                process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._reader.join(PATIENCE_SEC)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def toy_farm(tmp_path: Path) -> Iterator[Callable[..., ToyFarm]]:
    farms: list[ToyFarm] = []

    def start(*parts: dict[str, Any]) -> ToyFarm:
        farms.append(ToyFarm(tmp_path / "farm", list(parts)))
        return farms[-1]

    yield start
    for farm in farms:
        farm.close()
