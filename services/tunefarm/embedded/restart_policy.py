"""When a part that died is started again, and when the farm gives up. Pure."""

from __future__ import annotations

QUICK_DEATH_SEC = 30.0
MAX_QUICK_DEATHS = 5
MAX_DEATHS_BEFORE_UP = 3
_FIRST_WAIT_SEC = 0.5
_MOST_WAIT_SEC = 10.0


class RestartPolicy:
    """The history of one part's deaths."""

    def __init__(self) -> None:
        self._quick_deaths = 0
        self._ever_up = False

    def was_up(self) -> None:
        """The part did its work at least once."""
        self._ever_up = True

    def died(self, lived_sec: float) -> float | None:
        """Return how long to wait before the next start; None to give up.

        A part that lived for a while is started again as often as it takes. One that never came up is given up
        sooner: it is told something wrong, and waiting will not put that right.
        """
        if lived_sec >= QUICK_DEATH_SEC and self._ever_up:
            self._quick_deaths = 0
        self._quick_deaths += 1
        if self._quick_deaths >= (MAX_QUICK_DEATHS if self._ever_up else MAX_DEATHS_BEFORE_UP):
            return None
        return min(_FIRST_WAIT_SEC * 2.0 ** (self._quick_deaths - 1), _MOST_WAIT_SEC)
