"""Grandchildren whose parent died: found, ended and reaped by the process that answers for them.

Linux hands an orphan to its nearest living ancestor that asked for it, otherwise to PID 1, where nobody of ours would
ever find it again. On other systems the functions do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Container
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make the calling process the new parent of every descendant that loses its own."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill the calling process when its parent dies.

    Only for a child of a process that starts its children from a thread which lives as long as itself:
    the kernel watches the *thread* (see `lifeline` for the other way).

    Args:
        parent_pid: The parent as it was before the fork; where it is gone already, this does not return.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def own_children() -> list[int]:
    """Return the process ids of the calling process's children, the dead but unreaped ones too."""
    children: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.extend(int(pid) for pid in listing.read_text().split())
    return children


def end_orphans(known: Container[int] = (), *, within_sec: float = 0.0) -> list[int]:
    """Kill and reap every child that is not `known`, and what these leave behind; return their ids.

    Args:
        known: Children that somebody else answers for.
        within_sec: Wait this long for the killed to be gone; those that are not are met again at the next call.
    """
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
