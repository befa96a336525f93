"""A child must not outlive its parent, however the parent dies.

The parent holds the write end of a pipe, the child the read end. When the parent is gone the kernel closes the
write end, and this makes the kernel send SIGKILL to the child's whole process group: grandchildren (a linker,
say) die too, and no Python code has to run, which a child stuck in native code could not promise.

``PR_SET_PDEATHSIG``, the usual way, fires when the *thread* that started the child ends: our children are
started from short-lived threads, so it would kill them in mid-call. The end of stdin alone is not noticed before the
call at hand is over. Hence this.

A parent that forks without exec passes the write end on: the child then lives until that fork ends as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import stat
import threading


def die_at_end(fd: int) -> None:
    """Have the calling process group killed when the write end of the pipe `fd` closes."""
    os.set_inheritable(fd, False)
    _signal_at_end(fd, signal.SIGKILL)
    # For a parent that died before the line above, and for systems without signals on pipes.
    threading.Thread(target=_watch, args=(fd,), name="lifeline", daemon=True).start()


def wake_at_end(fd: int) -> None:
    """Have the calling process group continued, if it is stopped, when the write end of the pipe `fd` closes.

    For a process that reads `fd`, and ends by itself at its end. The kernel also wakes a stopped process group that is
    orphaned, but only if the stop was complete when the parent died; of a process with many threads it may not be.
    SIGCONT undoes a stop at any stage. Does nothing where `fd` is no pipe.
    """
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        _signal_at_end(fd, signal.SIGCONT)


def _signal_at_end(fd: int, number: int) -> None:
    # Not on other systems than Linux, and not in a sandbox that does not know signals on pipes.
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, number)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def _watch(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    poll.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)
