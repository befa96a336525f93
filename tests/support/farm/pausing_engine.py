"""A replay engine that pauses in the middle of a round, so that a test can act at that moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tunefarm_app.engines.replay import ReplayEngine


class PausingEngine(ReplayEngine):
    """Stops in the middle of every round until it is let go.

    Attributes:
        entered: Set once a round is under way.
        go_on: To be set by the test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    @contextmanager
    def measuring(self, device: Any, *, cancellation: Any) -> Iterator[Any]:
        with super().measuring(device, cancellation=cancellation) as option:
            self.entered.set()
            self.go_on.wait(60)
            yield option
