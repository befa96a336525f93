"""Wait longer after each failure."""

from __future__ import annotations


class Backoff:
    """Doubles from `first_sec` to `most_sec`; `reset` starts again at `first_sec`."""

    def __init__(self, *, first_sec: float, most_sec: float) -> None:
        self._first_sec = first_sec
        self._most_sec = most_sec
        self._next_sec = first_sec

    def next_sec(self) -> float:
        """Return the seconds to wait after one more failure."""
        wait_sec, self._next_sec = self._next_sec, min(2 * self._next_sec, self._most_sec)
        return wait_sec

    def reset(self) -> None:
        self._next_sec = self._first_sec
