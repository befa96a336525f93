"""The agent's side of its RPC server process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tunefarm_tuning.process.lifeline import end_orphans
from tunefarm_tuning.process.running import TVM_ENVIRONMENT
from tunefarm_tuning.process.sandbox import SANDBOX_VARIABLES

_MEMORY_SLACK_BYTES = 4 << 30
"""Address space that TVM and its threads reserve without using memory."""

_MAX_EVENTS = 1000
_HAND_OVER_SEC = 3.0
_PASS_RIGHTS = 83
"""``SO_PASSRIGHTS`` (Linux 6.16 and later): whether a socket takes open files."""

SERVER_MODULE = "tunefarm_workers.device.hardened_server"


def server_command(
    *,
    module: str = SERVER_MODULE,
    rpc_key: str,
    work_dir: Path,
    max_session_sec: float,
    memory_bytes: int | None,
) -> list[str]:
    """Return the command line of the server; `RpcProcess` adds the door."""
    command = [sys.executable, "-m", module, f"--key={rpc_key}", f"--work-dir={work_dir}"]
    command.append(f"--max-session-sec={max_session_sec}")
    if memory_bytes is not None:
        command.append(f"--memory-bytes={memory_bytes + _MEMORY_SLACK_BYTES}")
    return command


def server_environment(
    environment: Mapping[str, str], *, num_threads: int, gpu_uuid: str | None = None
) -> dict[str, str]:
    """Return the server's environment, without credentials: clients of the server can read it."""
    inherited = {
        name: value
        for name, value in environment.items()
        if not name.startswith("TUNEFARM_") or name in SANDBOX_VARIABLES
    }
    if gpu_uuid is not None:
        inherited["CUDA_VISIBLE_DEVICES"] = gpu_uuid
    else:  # kernels come compiled; a GPU's sessions check whole artifacts in children of theirs
        inherited["TVM_USE_RUNTIME_LIB"] = "1"
    threads = {"TVM_NUM_THREADS": str(num_threads), "OMP_NUM_THREADS": str(num_threads)}
    return {**TVM_ENVIRONMENT, **inherited, **threads}


class RpcProcess:
    """A process of the server; the constructor starts it.

    When the agent is killed, its end of the server's standard input closes. The server sees that and tidies up. If it is
    stopped at that moment, the kernel continues it first (`lifeline.wake_at_end`). So nothing is left behind.

    Concurrency: a thread drains the server's events; `connect` from any thread, the other methods from one.

    Args:
        command: The server's command line.
        environment: Its environment.
        options: More of `subprocess.Popen`'s arguments: whose process it is.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self._door, theirs = socket.socketpair()
        self._door.settimeout(_HAND_OVER_SEC)
        self._door_lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [*command, f"--door={theirs.fileno()}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=dict(environment),
                process_group=0,
                pass_fds=(theirs.fileno(),),
                **options,
            )
        self._drain = threading.Thread(target=self._read_events, name="rpc-events", daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def connect(self) -> socket.socket:
        """Return a new connection to the server, through its door: it listens nowhere.

        Raises:
            OSError: If the server has ended, or takes nothing.
        """
        ours, theirs = socket.socketpair()
        _refuse_open_files(ours)
        with theirs, self._door_lock:
            try:
                socket.send_fds(self._door, [b"x"], [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return ours

    def exit_code(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.poll()

    def events(self) -> list[dict[str, Any]]:
        """Return its events since the last call."""
        events = []
        with contextlib.suppress(IndexError):
            while True:
                events.append(self._events.popleft())
        return events

    def end(self, *, grace_sec: float) -> None:
        """End the server and all its child processes.

        Args:
            grace_sec: Seconds in which it may end by itself and remove its sessions' files; 0 kills it.
        """
        assert self._process.stdin is not None
        with self._door_lock:
            self._door.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if grace_sec > 0:
                self._process.wait(grace_sec)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        # A session's child died with the server; processes that it had started belong to the agent now.
        end_orphans(within_sec=2.0)
        self._drain.join(2.0)

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._events.append(event)


def _refuse_open_files(connection: socket.socket) -> None:
    """Have the kernel refuse what the other side sends of open files: here, a session's deleted ones would be in no sum.

    Without a GPU, a session's sandbox refuses it, too; CUDA's driver needs such calls. An older kernel does not know this.
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, _PASS_RIGHTS, 0)
