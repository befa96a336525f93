"""Real trackers, RPC servers and TVM clients, on free ports, gone after each test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

PATIENCE_SEC = 90.0


def wait_until(condition: Callable[[], Any], what: str, within_sec: float = PATIENCE_SEC) -> Any:
    deadline = time.monotonic() + within_sec
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {within_sec:g} s in vain: {what}")


class Child:
    """A process that writes JSON lines; its whole process group goes with it."""

    def __init__(self, arguments: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            process_group=0,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.events.append(json.loads(line))

    @property
    def pid(self) -> int:
        return self.process.pid

    def named(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one.get("event") == event]

    def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        return wait_until(lambda: self.named(event)[count - 1 : count], f"{count} x {event}; {self.events}")[
            0
        ]

    def end(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(PATIENCE_SEC)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SEC)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join(PATIENCE_SEC)
        assert self.process.stdout is not None
        self.process.stdout.close()


class TrackerProcess(Child):
    def __init__(self, port: int = 0) -> None:
        super().__init__(["-m", "tunefarm_workers.tracker", "--port", str(port)])
        self.port: int = wait_until(lambda: self.events, "the tracker's port")[0]["port"]


@pytest.fixture
def start() -> Iterator[Callable[[type[Child] | Callable[..., Child]], Any]]:
    """Start children; all are ended after the test, the last first."""
    children: list[Child] = []

    def go(kind: Callable[..., Child], *args: Any, **kwargs: Any) -> Child:
        children.append(kind(*args, **kwargs))
        return children[-1]

    yield go
    for child in reversed(children):
        child.close()


@pytest.fixture
def tracker(start: Callable[..., Any]) -> TrackerProcess:
    process: TrackerProcess = start(TrackerProcess)
    return process


@pytest.fixture
def start_tracker(start: Callable[..., Any]) -> Callable[..., Any]:
    return lambda port=0: start(TrackerProcess, port)


class ServerProcess(Child):
    """A hardened server on its own."""

    key = "dev-test"

    def __init__(self, tracker_port: int, work_dir: Path, *options: str) -> None:
        self.work_dir = work_dir
        super().__init__(
            [
                "-m",
                "tunefarm_workers.device.hardened_server",
                *("--key", self.key, "--tracker", f"127.0.0.1:{tracker_port}"),
                *("--work-dir", str(work_dir), *options),
            ],
            env={"TVM_NUM_THREADS": "1"},
        )
        self.port: int = self.wait_for("listening")["port"]

    def session_folders(self) -> list[Path]:
        return list(self.work_dir.glob("session-*"))


@pytest.fixture
def server(start: Callable[..., Any], tracker: TrackerProcess, tmp_path: Path) -> ServerProcess:
    process: ServerProcess = start(ServerProcess, tracker.port, tmp_path / "sessions")
    return process


@pytest.fixture
def start_server(start: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda tracker_port, *options: start(ServerProcess, tracker_port, tmp_path / "sessions", *options)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of kernels of every temper, as TVM's runtime calls them."""
    folder = tmp_path_factory.mktemp("kernels")
    source, library = folder / "kernels.c", folder / "kernels.so"
    source.write_text(
        """
        #include <signal.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <unistd.h>
        #define KERNEL(name) int __tvm_ffi_##name(void *self, const void *args, int32_t n, void *result)
        KERNEL(good) { return 0; }
        KERNEL(crash) { raise(SIGSEGV); return 0; }
        KERNEL(leave) { exit(7); }
        KERNEL(spin) { for (;;) sleep(1); }
        KERNEL(freeze) { raise(SIGSTOP); return 0; }
        KERNEL(litter) { if (fork() == 0) { setsid(); if (fork() == 0) for (;;) sleep(1); _exit(0); } return 0; }
        """
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


class Client:
    """What a worker does: ask the tracker for a session, with a time limit, and call kernels."""

    def __init__(self, tracker_port: int, kernels: Path, key: str = ServerProcess.key) -> None:
        self.tracker_port = tracker_port
        self.kernels = kernels
        self.key = key

    def session(self, timeout_sec: int = 60) -> Any:
        """Open a session; the tracker's queue has no time limit of its own, so neither does this."""
        from tvm import rpc

        return rpc.connect_tracker("127.0.0.1", self.tracker_port).request(
            self.key, session_timeout=timeout_sec
        )

    def call(self, kernel: str, timeout_sec: int = 60) -> None:
        """Call one kernel in a session of its own."""
        session = self.session(timeout_sec)
        session.upload(str(self.kernels))
        session.load_module("kernels.so")[kernel]()

    def assert_serves(self, within_sec: float = PATIENCE_SEC) -> None:
        """A good kernel runs, within the time, in a process that can be given up."""
        subprocess.run(self.command("good"), check=True, timeout=within_sec)

    def command(self, kernel: str, timeout_sec: int = 60) -> list[str]:
        """Return the command line of a process that does `call`."""
        port, library = str(self.tracker_port), str(self.kernels)
        return [sys.executable, __file__, port, library, self.key, kernel, str(timeout_sec)]


@pytest.fixture
def client(tracker: TrackerProcess, kernels: Path) -> Client:
    return Client(tracker.port, kernels)


@pytest.fixture
def make_client(kernels: Path) -> Callable[..., Client]:
    return lambda tracker_port, key=ServerProcess.key: Client(tracker_port, kernels, key)


def gone(pid: int) -> bool:
    """Whether a process is no more (a zombie is no more)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SEC)


@pytest.fixture
def tools() -> Any:
    """The functions above: test modules cannot import a conftest."""

    class Tools:
        gone = staticmethod(gone)
        connect = staticmethod(connect)
        wait_until = staticmethod(wait_until)

    return Tools


if __name__ == "__main__":
    Client(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).call(sys.argv[4], int(sys.argv[5]))
