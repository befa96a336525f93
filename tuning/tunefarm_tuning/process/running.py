"""A running child, as its parent uses it: process group, environment, pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.sandbox import Access, sandbox_order

TVM_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        # TVM's pool, even one of a single thread, binds its creator to the machine's first cores, even against a
        # ``taskset``. Every other process's pool takes the same cores.
        "TVM_BIND_THREADS": "0",
        # Five milliseconds, as in an artifact (its `threads.py`). By default TVM's pools ask for work for a tenth of a second
        # after each call, on the cores where the next timing runs.
        "TVM_THREAD_POOL_SPIN_COUNT": "10000",
        # Where PyTorch is installed, TVM's import asks it for GPUs, which starts CUDA. If that process forks (a device's RPC
        # server does), no session can use the GPU. No tensors of PyTorch go to TVM there.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
        # NumPy's threads would be there before a child enters its sandbox. What our children multiply with NumPy is small.
        "OPENBLAS_NUM_THREADS": "1",
        # PyTorch answers other questions about GPUs through the driver's NVML, which starts nothing.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
)
"""The environment of all our processes that import TVM; variables that are already set win."""

_TUNABLES = "GLIBC_TUNABLES"
OF_NETWORKS: Mapping[str, str] = MappingProxyType(
    {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", _TUNABLES: "glibc.malloc.hugetlb=1"}
)
"""Of children that hold whole networks and time nothing: there is little to compute, and each thread costs address space; and glibc asks for
memory in huge pages. In pages of 4 KB, a fifth of such a child's time goes to the kernel, which clears each of them. What is timed must
not have these, since a user's process has not."""

STRICT_PASSES = "TUNEFARM_STRICT_PASSES"
"""Variable: a graph pass that fails ends the import, even where another layout works. Tests set it."""

_PIPE_BYTES = 1 << 20
_ORDER_SEC = 180.0
_LOWEST_PRIORITY = 19
_FIRST_TO_END = 1000
"""The kernel ends such a process before all others when memory runs out."""
_SET_TRIES = 20
_SET_AGAIN_SEC = 0.06
_SECRET_WORDS = ("PASSWORD", "SECRET", "TOKEN", "API_KEY", "CREDENTIAL", "DATABASE_URL", "BROKER")


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without its secrets, plus `extra`.

    A child runs strangers' models, and a device that it talks to can call back into it: it gets no
    database, broker or API credentials.
    """
    harmless = {
        name: value
        for name, value in os.environ.items()
        if (name == STRICT_PASSES or not name.startswith(("TUNEFARM_", "CELERY_")))
        and not any(word in name.upper() for word in _SECRET_WORDS)
    }
    environment = {**TVM_ENVIRONMENT, **harmless, **extra}
    if _TUNABLES in harmless and _TUNABLES in extra:
        environment[_TUNABLES] = f"{harmless[_TUNABLES]}:{extra[_TUNABLES]}"
    return environment


_background: ContextVar[bool] = ContextVar("background", default=False)


@contextlib.contextmanager
def in_background() -> Iterator[None]:
    """Give children that this context starts in the block only the processor time that nobody else wants."""
    token = _background.set(True)
    try:
        yield
    finally:
        _background.reset(token)


def is_background() -> bool:
    """Return whether children that this context starts are `in_background`."""
    return _background.get()


def _step_back(pid: int) -> None:
    """Let a process that leads a session, and all that it starts, run only where a core is idle, and end first if memory runs out.

    Elsewhere than on Linux it runs rarely on a busy core. Between cgroups the kernel shares a core without regard to this.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, pid, _LOWEST_PRIORITY)
    # With `kernel.sched_autogroup_enabled`, a policy ranks only within the session, and sessions compete by their groups' nice.
    _set_of_process(pid, "autogroup", _LOWEST_PRIORITY)
    _set_of_process(pid, "oom_score_adj", _FIRST_TO_END)


def _set_of_process(pid: int, name: str, value: int) -> None:
    """Write one of Linux's settings of a process, if there is such a one."""
    path = Path(f"/proc/{pid}/{name}")
    for _ in range(_SET_TRIES):
        try:
            path.write_text(str(value))
        except BlockingIOError:  # unprivileged processes may change a group ten times a second, all together
            time.sleep(_SET_AGAIN_SEC)
        except OSError:
            return
        else:
            return


class RunningChild:
    """A started child, which waits for its order. Concurrency: `kill` and `ended` from any thread; the rest from one at a time.

    Attributes:
        overfull: How it wrote more than it may, for which it was killed (see `disk_watch`); None if it did not.
    """

    def __init__(self, *early: str, env: Mapping[str, str]) -> None:
        """Start it; it imports the modules `early`."""
        requests_read, self._requests = os.pipe()
        self.replies, replies_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        stderr_read, stderr_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                # -P: a folder called tvm in the working directory must not be imported.
                [sys.executable, "-P", "-m", "tunefarm_tuning.process", str(lifeline_read), *early],
                stdin=requests_read,
                stdout=replies_write,
                stderr=stderr_write,
                pass_fds=(lifeline_read,),
                start_new_session=True,
                env=child_environment(env),
            )
        except BaseException:
            for fd in (self._requests, self.replies, self._lifeline, stderr_read):
                os.close(fd)
            raise
        finally:
            for fd in (requests_read, replies_write, lifeline_read, stderr_write):
                os.close(fd)
        with contextlib.suppress(OSError):  # large enough for a workload; a smaller pipe is only slower
            fcntl.fcntl(self._requests, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._requests, False)
        os.set_blocking(self.replies, False)
        self.errors = ErrorOutput(stderr_read)
        self.overfull: str | None = None
        self._lock = threading.Lock()
        self._received = bytearray()

    def give_order(
        self, module: str, *, limits: ChildLimits, access: Access | None, env: Mapping[str, str]
    ) -> None:
        """Tell it what it is for; its first line is the answer.

        Args:
            module: The module with its handlers.
            limits: What it may use.
            access: What it may touch.
            env: Added to its environment.

        Raises:
            InvalidInputError: As `sandbox_order`.
        """
        order = {
            "module": module,
            "limits": limits.to_text(),
            "sandbox": sandbox_order(access),
            "environment": dict(env),
        }
        if is_background():
            _step_back(self.pid)  # the interpreter has no other threads yet
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells
            line = json.dumps(order, separators=(",", ":")).encode() + b"\n"
            self.write(line, deadline=time.monotonic() + _ORDER_SEC)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended. It is not reaped: its group's id stays reserved until `kill`."""
        with self._lock:
            if self._process.returncode is not None:
                return True
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:  # who embeds the engine may reap all children of its process
                self._process.poll()
                return True

    def write(self, data: bytes, *, deadline: float) -> None:
        """Send bytes.

        Raises:
            BrokenPipeError: If the child is gone.
            TimeoutError: If it does not read them before `deadline` (`time.monotonic`).
        """
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._requests, view) :]
            except BlockingIOError:
                _wait(self._requests, select.POLLOUT, deadline)

    def read_line(self, *, deadline: float, max_bytes: int) -> bytes | None:
        """Return the next line, or None at the end of the child's output.

        Raises:
            TimeoutError: If no line is there before `deadline`.
            ValueError: If the line is longer than `max_bytes`.
        """
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > max_bytes:
                raise ValueError("line too long")
            try:
                chunk = os.read(self.replies, 1 << 20)
            except BlockingIOError:
                _wait(self.replies, select.POLLIN, deadline)
                continue
            if not chunk:
                return None
            self._received += chunk
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def wait(self, timeout_sec: float) -> None:
        """Wait until the child ends by itself, but no longer than `timeout_sec`."""
        until = time.monotonic() + timeout_sec
        while not self.ended and time.monotonic() < until:
            time.sleep(0.005)

    def kill(self) -> int:
        """End the whole process group and reap the child; return its code as `subprocess` gives it."""
        with self._lock:
            if self._process.returncode is None:
                # Before the child is reaped: until then no other process can get its id.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()
            return self._process.returncode

    def release(self) -> None:
        """Close the pipes. Call it only when nobody reads or writes them."""
        for fd in (self._requests, self.replies, self._lifeline):
            os.close(fd)


def _wait(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


_KEPT_BYTES = 64 << 10


class ErrorOutput:
    """Reads a descriptor in its own thread and keeps the last 64 KiB.

    Ownership: closes the descriptor when the last writer is gone.
    """

    def __init__(self, fd: int) -> None:
        self._tail = bytearray()
        self._thread = threading.Thread(target=self._drain, args=(fd,), name="child-stderr", daemon=True)
        self._thread.start()

    def _drain(self, fd: int) -> None:
        try:
            while chunk := os.read(fd, 1 << 16):
                self._tail += chunk
                del self._tail[:-_KEPT_BYTES]
        finally:
            os.close(fd)

    def text(self, *, wait_sec: float = 0.0) -> str:
        """Return the kept bytes, after waiting up to `wait_sec` for the writers to end."""
        self._thread.join(wait_sec)
        return bytes(self._tail).decode("utf-8", "replace")

    def last_lines(self, count: int = 20, *, wait_sec: float = 0.0) -> str:
        """Return the last lines, each cleaned, one a line."""
        lines = [line for line in self.text(wait_sec=wait_sec).splitlines() if line.strip()]
        return "\n".join(clean(line, 200) for line in lines[-count:])
