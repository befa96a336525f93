"""End the processes of a test run with the run."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel end the calling process when the one that started it dies: for a `Popen`'s ``preexec_fn``.

    The kernel watches the thread that called `Popen`; tests do that in their main thread. It takes no lock.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
