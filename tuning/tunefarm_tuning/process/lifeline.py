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

import fcntl
import os
import select
import signal
import threading


def hold_on(fd: int) -> None:
    """Tie the calling process group to the pipe whose read end is `fd`."""
    os.set_inheritable(fd, False)
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError):
        # Not Linux, or a sandbox that does not know signals on pipes: the thread below is all there is.
        pass
    # Also covers a parent that died before the lines above.
    threading.Thread(target=_watch, args=(fd,), name="lifeline", daemon=True).start()


def _watch(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    poll.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)
