"""``tether.py FD COMMAND…``: run COMMAND, tied to the process that holds the write end of the pipe FD.

When that process is gone, however it went, the kernel kills this one's whole process group. The tie needs no code in COMMAND,
so it holds for a foreign binary too (compare `tunefarm_tuning.process.lifeline`, which says why it is not PR_SET_PDEATHSIG).
Run by its path, without any package: it must start quickly.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys


def main(argv: list[str]) -> None:
    """Start the command and wait; never returns."""
    fd, command = int(argv[0]), argv[1:]
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError) as error:
        sys.stderr.write(f"not tied to the supervisor: {error}\n")
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    if poll.poll(0):
        sys.exit(1)  # the supervisor died before the lines above
    os.set_inheritable(fd, True)
    try:
        os.execvp(command[0], command)  # noqa: S606  (no shell on purpose)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
