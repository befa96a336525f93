"""Decide when a process that died is restarted, and when the farm gives up. Pure."""

from __future__ import annotations

QUICK_DEATH_SEC = 30.0
MAX_QUICK_DEATHS = 5
MAX_DEATHS_BEFORE_UP = 3
EXIT_REFUSED = 2
"""Exit code of our programs for settings with which they cannot run (a used port, an invalid value)."""
_FIRST_WAIT_SEC = 0.5
_MOST_WAIT_SEC = 10.0


class RestartPolicy:
    """The history of one process's deaths."""

    def __init__(self) -> None:
        self._quick_deaths = 0
        self.ever_up = False

    def was_up(self) -> None:
        """Note that the process was ready at least once."""
        self.ever_up = True

    def died(self, lived_sec: float, *, code: int | None = None) -> float | None:
        """Return the seconds to wait before the next start; None to give up.

        A process that lived for a while is started again as often as it takes. One that never came up is given up
        sooner, and at once when it says itself that it was told something wrong: waiting will not put that right.
        """
        if code == EXIT_REFUSED and not self.ever_up:
            return None
        if lived_sec >= QUICK_DEATH_SEC and self.ever_up:
            self._quick_deaths = 0
        self._quick_deaths += 1
        if self._quick_deaths >= (MAX_QUICK_DEATHS if self.ever_up else MAX_DEATHS_BEFORE_UP):
            return None
        return min(_FIRST_WAIT_SEC * 2.0 ** (self._quick_deaths - 1), _MOST_WAIT_SEC)
