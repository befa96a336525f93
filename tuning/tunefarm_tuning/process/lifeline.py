"""Tie child processes to their parents, so that none outlives the process that started it.

Lifeline: the parent holds the write end of a pipe, the child the read end. When the parent is gone, however it died, the
kernel closes the write end and sends a signal to the child's whole process group. No Python code has to run, which a child
stuck in native code could not promise. With SIGKILL (`die_at_end`), grandchildren such as a linker die too. A parent that
forks without exec passes the write end on: the child then lives until that fork ends as well.

``PR_SET_PDEATHSIG`` (`die_with_parent`), the usual way, fires when the *thread* that started the child ends. It serves
processes that start children from their main thread only. The engine's children are started from short-lived threads.

Orphans: Linux hands an orphan to its nearest living ancestor that asked for it (`adopt_orphans`), otherwise to PID 1, where
none of our processes would ever find it again.

On other systems than Linux the kernel's part is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path


def die_at_end(fd: int) -> Callable[[], None]:
    """Let the kernel kill the calling process group when the write end of the pipe `fd` closes.

    Returns:
        What starts a thread that does the same: for a parent that died before this, and for systems without signals on pipes.
        A process that enters a sandbox calls it afterwards.
    """
    os.set_inheritable(fd, False)
    _signal_at_end(fd, signal.SIGKILL)
    return threading.Thread(target=_watch, args=(fd,), name="lifeline", daemon=True).start


def wake_at_end(fd: int) -> None:
    """Let the kernel continue the calling process group, if it is stopped, when the write end of the pipe `fd` closes.

    For a process that reads `fd`, and ends by itself at its end. The kernel also wakes a stopped process group that is
    orphaned, but only if the stop was complete when the parent died; of a process with many threads it may not be.
    SIGCONT undoes a stop at any stage. Does nothing where `fd` is no pipe.
    """
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        _signal_at_end(fd, signal.SIGCONT)


def _signal_at_end(fd: int, number: int) -> None:
    # Only Linux has signals on pipes, and some sandboxes do not.
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, number)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def _watch(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    poll.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)


_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make the calling process the new parent of every orphaned descendant."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill the calling process when its parent dies.

    Only for a child of a process that starts its children from a thread which lives as long as itself:
    the kernel watches the *thread*.

    Args:
        parent_pid: The parent before the fork; if it has ended already, this does not return.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def forbid_inspection() -> None:
    """Let no other process of this user look into the calling one: memory, environment, open files, and no core dump of it.

    For processes that hold secrets and whose children touch strangers' bytes: a second wall behind the children's sandbox. Root may
    look. A program that this process executes can be looked into again.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def own_children() -> list[int]:
    """Return the process ids of the calling process's children, including dead ones that are not reaped."""
    children: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.extend(int(pid) for pid in listing.read_text().split())
    return children


def end_orphans(known: Container[int] = (), *, within_sec: float = 0.0) -> list[int]:
    """Kill and reap every child that is not `known`, and their orphans, for up to `within_sec`; return the ids."""
    deadline = time.monotonic() + within_sec
    ended: list[int] = []
    while strangers := [pid for pid in own_children() if pid not in known]:
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                reaped, _ = os.waitpid(pid, os.WNOHANG)
                ended.extend([reaped] if reaped else [])
        if time.monotonic() >= deadline:
            break
        time.sleep(0.005)
    return ended


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
