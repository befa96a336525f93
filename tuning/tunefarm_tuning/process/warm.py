"""Children that have loaded TVM before anybody needs them.

Loading TVM takes a child most of a second. A process that is asked for such children again and again keeps some that have done so, and
wait for their order. Each is a fresh interpreter that serves one `ChildProcess` and ends with it; it has read nothing of a stranger's
before its order, with which it gets its limits and its sandbox as any other child does.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.process.running import OF_NETWORKS, RunningChild, is_background

_COMPILE = "tunefarm_tuning.tvm.children.compile"
_EARLY = ("tunefarm_tuning.tvm.children.import_network", _COMPILE)
"""Short-lived children whose start is waited for. Loading one's modules brings nearly all of the other's, and both ask for the environment
of those that hold networks, which libraries read when they are loaded. The rest of an environment comes with the order."""


class WarmChildren:
    """The waiting children of this process. Concurrency: from any thread.

    They end with this process, however it dies, as all children do (see `lifeline`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[RunningChild] = deque()
        self._count = 0

    def keep(self, count: int) -> None:
        """Keep so many from now on; 0 ends those that wait. Each takes about a quarter of a gigabyte."""
        with self._lock:
            self._count = count
            self._fill()

    def take(self, module: str) -> RunningChild | None:
        """Return one for an order for `module`; None if there is none that fits.

        Its successor starts at once, beside an import, which uses one core; after a compile, which uses all, with the next `keep`.
        There is none in the background: a successor would take time from others.
        """
        if module not in _EARLY or is_background():
            return None
        with self._lock:
            running = None
            while self._waiting and running is None:
                running = self._waiting.popleft()
                if running.ended:  # for want of memory, say
                    _end(running)
                    running = None
            if module != _COMPILE:
                self._fill()
        return running

    def _fill(self) -> None:
        while len(self._waiting) > self._count:
            _end(self._waiting.pop())
        while len(self._waiting) < self._count:
            self._waiting.append(RunningChild(*_EARLY, env=OF_NETWORKS))


class EarlyChild(Closing):
    """A child that starts now and gets its order later: for a caller that knows beforehand which child it will call.

    Of the other two kinds of children it differs in nothing. In the background, and on a single core, there is none: it would take time
    from what the caller does meanwhile. Concurrency: `close` from any thread.

    Args:
        modules: The modules that it imports meanwhile.
    """

    def __init__(self, *modules: str) -> None:
        self._lock = threading.Lock()
        alone = is_background() or len(os.sched_getaffinity(0)) < 2
        self._running: RunningChild | None = None
        if not alone:
            with suppress(
                OSError
            ):  # too many processes or files: the caller starts the child when it calls it
                self._running = RunningChild(*modules, env={})

    def take(self) -> RunningChild | None:
        """Return the child, once; None if there is none, or it has ended."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None and running.ended:
            _end(running)
            return None
        return running

    def close(self) -> None:
        """End the child, unless it was taken."""
        if (running := self.take()) is not None:
            _end(running)


def _end(running: RunningChild) -> None:
    running.kill()
    running.release()


WARM = WarmChildren()
"""Those of this process; none, unless `keep` is called."""
