"""Order a device's lease holders by the numbers of their leases, which clients present. Pure.

The service numbers the leases of a device. A worker that froze and lost its lease may still have its session open, or open
another one when it wakes. It gives way to the holder of a later lease. A client that names no lease is always admitted.
"""

from __future__ import annotations

MEMORY_SEC = 60.0
"""How long an earlier lease is refused after the last sign of a later one. Not for ever, because a farm restored from a
backup numbers its leases from there."""


class Fences:
    """Remembers the newest lease that a client has named. Times are those of one monotonic clock."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._heard_at = 0.0
        self._in_session: int | None = None
        self._busy = False

    def let_in(self, fence: int | None, now: float) -> bool:
        """Return whether a client may have a session: no client of a later lease came lately."""
        if fence is None:
            return True
        self._forget(now)
        if self._newest is not None and fence < self._newest:
            return False
        self._newest, self._heard_at = fence, now
        return True

    def claim(self, fence: int | None, now: float) -> bool:
        """Note that this lease is held; return whether the running session belongs to an earlier lease."""
        if fence is None or not self.let_in(fence, now):
            return False
        return self._busy and self._in_session is not None and self._in_session < fence

    def began(self, fence: int | None) -> None:
        """Note that a session began under this lease."""
        self._busy, self._in_session = True, fence

    def ended(self, now: float) -> None:
        """Note that the session ended; its lease may be used again."""
        if self._busy and self._in_session is not None and self._in_session == self._newest:
            self._heard_at = now
        self._busy, self._in_session = False, None

    def _forget(self, now: float) -> None:
        if now - self._heard_at > MEMORY_SEC and not (self._busy and self._in_session == self._newest):
            self._newest = None
