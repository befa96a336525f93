"""Progress of a compile: told to the caller, timed, and the place where a cancel is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError

OnProgress = Callable[[str, float], None]
"""Called with a phase's name and how much of it is done (0.0 to 1.0)."""

PHASES = ("load", "check-kernels", "build-model", "check-model", "measure", "pack")
"""Of a compile, in order."""


class Progress:
    """Where a compile is.

    Attributes:
        phases_sec: Wall-clock of each phase that is over.
    """

    def __init__(self, tell: OnProgress, cancellation: Cancellation) -> None:
        self._tell = tell
        self._cancellation = cancellation
        self._phase = ""
        self._began = time.monotonic()
        self.phases_sec: dict[str, float] = {}

    @property
    def elapsed_sec(self) -> float:
        """How long it has been under way."""
        return time.monotonic() - self._began

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in a phase for the length of the block."""
        self._phase = name
        self.step(0.0)
        started = time.monotonic()
        yield
        self.phases_sec[name] = time.monotonic() - started
        self.step(1.0)

    def step(self, done: float) -> None:
        """Say how much of the phase is done.

        Raises:
            CancelledError: If the user asked to stop.
        """
        if self._cancellation.cancelled:
            raise CancelledError("the compile was cancelled")
        self._tell(self._phase, done)
