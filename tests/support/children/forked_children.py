"""Children of the engine that are forked from a process that has TVM, instead of importing it each: a pytest plugin.

A child is a fresh interpreter, and importing NumPy, TVM and its modules takes it half a processor second: most of what small networks cost.
The tests of a process start some thousand. Here a server (`fork_server`) has done the imports, and each child is a fork of it that does what
the program of children does from its first line on: lifeline, order, limits, sandbox. What this cannot show is shown with fresh
interpreters: by the tests in `FRESH`, by all processes that tests start (a farm's children are of its own processes), and by every test
with ``--fresh-children``.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fork_server import ADOPTED

from tunefarm_tuning.process import running

FRESH = (
    "tests/security/",
    "tests/soak/",
    "tests/unit/tuning/process/",
)
"""Tests of children themselves."""
MODULES = (
    "tunefarm_tuning.tvm.children.compile",
    "tunefarm_tuning.tvm.children.import_network",
    "tunefarm_tuning.tvm.children.run",
)
READ_AT_LOAD = ("CUDA", "GLIBC_", "LD_", "MALLOC_", "OPENBLAS_", "PYTHON", "TVM_DEVICE", "TVM_FFI", "TVM_USE")
"""Variables that the interpreter and libraries read when they are loaded: a server has those of all its children."""
MAX_SERVERS = 3
_EARLY_AT = 5
"""Where a command's arguments name the modules that the child imports early (see `RunningChild`)."""
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37


class ForkServer:
    """A server for children with the same variables of `READ_AT_LOAD`; it ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = Path(__file__).with_name("fork_server.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", program, str(theirs.fileno()), *MODULES],
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, order: Mapping[str, object], descriptors: Sequence[int]) -> int:
        """Start a child of this process, and return its id.

        Raises:
            OSError: If the server has ended.
        """
        with _adopting_orphans():
            socket.send_fds(self._channel, [json.dumps(order).encode()], list(descriptors))
            answers = {self._channel.recv(64) for _ in range(2)}
        if b"" in answers:
            raise OSError("the server of forked children has ended")
        (pid,) = answers - {ADOPTED}
        return int(pid)

    @property
    def status(self) -> int | None:
        """The server's exit status; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=60.0)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make this process the parent of orphans below it, during the block."""
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_SUBREAPER, before.value, 0, 0, 0)


class ForkedProcess:
    """What `RunningChild` uses of ``subprocess.Popen``, for a child of this process that something else started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else has: `subprocess` says 0, too
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


class Starter:
    """Starts the children of this process: forks, unless `fresh` is set or their variables are unlike all others'."""

    def __init__(self) -> None:
        self.fresh = False
        self._lock = threading.Lock()
        self._servers: dict[tuple[tuple[str, str], ...], ForkServer] = {}

    def popen(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int],
        env: Mapping[str, str],
        start_new_session: bool,
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        key = tuple(sorted((name, value) for name, value in env.items() if name.startswith(READ_AT_LOAD)))
        with self._lock:
            server = None if self.fresh else self._server(key, env)
            if server is not None:
                order: dict[str, Any] = {
                    "early": list(command[_EARLY_AT:]),
                    "environment": dict(env),
                    "folder": str(Path.cwd()),
                    "cores": sorted(os.sched_getaffinity(0)),
                }
                return ForkedProcess(server.start(order, (stdin, stdout, stderr, *pass_fds)))
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            env=env,
            start_new_session=start_new_session,
        )

    def _server(self, key: tuple[tuple[str, str], ...], env: Mapping[str, str]) -> ForkServer | None:
        """Return the server of these variables; None if there are too many others. One that somebody killed is replaced."""
        server = self._servers.get(key)
        if server is not None and server.status is not None:
            print(
                f"a server of forked children has ended with {server.status}; another starts", file=sys.stderr
            )
            server.close()
            del self._servers[key]
            server = None
        if server is None and len(self._servers) < MAX_SERVERS:
            server = self._servers[key] = ForkServer(env)
        return server

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()


STARTER = Starter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that starts every child as users' are."""
    parser.addoption(
        "--fresh-children", action="store_true", help="start each child of the engine as a fresh interpreter"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Put the starter where children are started."""
    STARTER.fresh = config.getoption("--fresh-children") or not hasattr(os, "sched_getaffinity")
    running.subprocess = SimpleNamespace(Popen=STARTER.popen)  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give tests of children themselves fresh interpreters."""
    STARTER.fresh = (
        item.config.getoption("--fresh-children")
        or not hasattr(os, "sched_getaffinity")
        or item.nodeid.startswith(FRESH)
    )


def pytest_unconfigure() -> None:
    """End the servers."""
    STARTER.close()
