"""A session: a client, and the forked child process that runs the client's code.

The child can crash, hang, stop or fork; when the session ends, by itself or by its time limit, the child, everything
it started and its files are gone before the device is offered again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import site
import socket
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tunefarm_tuning.measure.gpu.nvml_recorded import recorded_folders
from tunefarm_tuning.process.disk_watch import FolderWatch, WriteLimits, write_limit
from tunefarm_tuning.process.lifeline import die_with_parent, end_orphans
from tunefarm_tuning.process.sandbox import Access, enter, sandbox_order
from tunefarm_tuning.process.scratch import delete
from tunefarm_workers.device.hardened_server import tvm_private

_ABANDONED_SEC = 5.0
"""A session ends when its client hangs up; a child that does not notice (in an endless kernel) is killed after this time."""

_MAX_FILE_BYTES = 4 << 30
_TCP_CLOSED_STATES = (7, 8)  # CLOSE and CLOSE_WAIT in Linux's tcp_info


class SessionEnding(StrEnum):
    """Reasons why a session ended."""

    FINISHED = "finished"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    ABANDONED = "abandoned"  # the client hung up, and the child did not end
    OVERTAKEN = "overtaken"  # another holder has leased the device
    OVERFULL = "overfull"  # its files took too much room
    STOPPED = "stopped"  # the server ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """How a session ended; `detail` names the signal or exit code of a crash, or the limit of its files."""

    ending: SessionEnding
    peer: str
    duration_sec: float
    detail: str = ""


class Session:
    """A running session; starts its child at once.

    Ownership: owns the connection, the child and the folder; `poll` or `stop` ends all three.

    Args:
        connection: The client's, after the welcome; made blocking here.
        work_dir: Parent of the session's folder.
        timeout_sec: Time limit of the session.
        memory_bytes: Address space of the child; None for no limit.
        gpu: Whether it may use GPUs.
    """

    def __init__(
        self,
        connection: socket.socket,
        peer: str,
        *,
        work_dir: Path,
        timeout_sec: float,
        memory_bytes: int | None,
        gpu: bool = False,
    ) -> None:
        connection.setblocking(True)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._peer = peer
        self._timeout_sec = timeout_sec
        self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=work_dir))
        self._started = time.monotonic()
        self._abandoned_since: float | None = None
        self._ended = False
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _run_child(connection, self._folder, parent, memory_bytes, gpu=gpu)
        # In parent and child, because either can be first.
        with contextlib.suppress(OSError):
            os.setpgid(self._pid, self._pid)
        self._watch = FolderWatch([self._folder], self._pid, WriteLimits(total_bytes=write_limit()))

    def poll(self) -> SessionEnd | None:
        """Return how the session ended; None while it runs."""
        now = time.monotonic()
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            detail = _describe(os.waitstatus_to_exitcode(status))
            return self._end(SessionEnding.CRASHED if detail else SessionEnding.FINISHED, detail)
        if now - self._started >= self._timeout_sec:
            return self._kill(SessionEnding.TIMED_OUT)
        if (excess := self._watch.excess()) is not None:
            return self._kill(SessionEnding.OVERFULL, excess)
        if not _is_closed_by_peer(self._connection):
            self._abandoned_since = None
        elif self._abandoned_since is None:
            self._abandoned_since = now
        elif now - self._abandoned_since >= _ABANDONED_SEC:
            return self._kill(SessionEnding.ABANDONED)
        return None

    def stop(self, ending: SessionEnding = SessionEnding.STOPPED) -> SessionEnd:
        """End the session now."""
        return self._kill(ending)

    def _kill(self, ending: SessionEnding, detail: str = "") -> SessionEnd:
        self._kill_group()
        os.waitpid(self._pid, 0)
        if ending is SessionEnding.TIMED_OUT:
            # Only now, when the child cannot write in between. A client that does not read must not block the server.
            with contextlib.suppress(Exception):
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 2, 0))
                tvm_private.tell_timeout(self._connection.fileno(), self._timeout_sec)
        return self._end(ending, detail)

    def _end(self, ending: SessionEnding, detail: str) -> SessionEnd:
        if not self._ended:
            self._ended = True
            self._kill_group()
            end_orphans(within_sec=2.0)
            with contextlib.suppress(OSError):
                self._connection.close()
            delete(self._folder)
        return SessionEnd(
            ending=ending, peer=self._peer, duration_sec=time.monotonic() - self._started, detail=detail
        )

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)


def _run_child(
    connection: socket.socket, folder: Path, parent: int, memory_bytes: int | None, *, gpu: bool
) -> None:
    """Run the session in the child; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        _let_go_of_the_server(connection.fileno())
        _limit(memory_bytes)
        os.chdir(folder)
        # Temporary files of TVM and compilers are removed with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        _confine(folder, gpu=gpu)
        tvm_private.serve(connection.fileno(), tvm_private.Workspace(folder))
        code = 0
    except BaseException:  # noqa: BLE001 (a forked child must not run the server's code any further)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _let_go_of_the_server(keep: int) -> None:
    """Close the server's descriptors (its port must not outlive it) and forget its signal handlers."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, keep)
    os.closerange(keep + 1, min(1 << 16, os.sysconf("SC_OPEN_MAX")))


def _confine(folder: Path, *, gpu: bool) -> None:
    """Enter the sandbox: what the session runs reaches this folder, the system, Python and its packages, and no network."""
    order = sandbox_order(
        Access(reads=recorded_folders(), writes=(folder,), programs=True, children=True, gpu=gpu)
    )
    if enter(order).landlock:
        # Caches of libraries, of CUDA for example; the user's own packages stay.
        os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
        os.environ["HOME"] = str(folder)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # several share memory under /dev/shm


def _limit(memory_bytes: int | None) -> None:
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)]
    if memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, memory_bytes))
    for kind, value in limits:
        _, ceiling = resource.getrlimit(kind)
        value = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (value, value))
    # If memory runs out, the kernel should kill this process first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _describe(code: int) -> str:
    """Return the meaning of an exit code; empty for a clean end."""
    if code == 0:
        return ""
    if code > 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _is_closed_by_peer(connection: socket.socket) -> bool:
    if connection.family == socket.AF_UNIX:
        poll = select.poll()
        poll.register(connection, select.POLLHUP)
        return bool(poll.poll(0))
    if not hasattr(socket, "TCP_INFO"):
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _TCP_CLOSED_STATES
    except OSError:
        return True
