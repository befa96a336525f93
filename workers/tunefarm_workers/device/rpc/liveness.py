"""Decide whether an RPC server lives, and when to stop waiting for it. Pure."""

from __future__ import annotations

HELLO_PATIENCE_SEC = 6.0
LISTING_PATIENCE_SEC = 15.0
START_PATIENCE_SEC = 90.0


class Liveness:
    """Judges a process of the server by its answers and by the tracker's list.

    Args:
        started: When it was started; all times are of one monotonic clock.
        hello_patience_sec: Longest time without an answer at its port.
        listing_patience_sec: Longest time for which a working tracker may not list it.
        start_patience_sec: Longest time until it listens.
    """

    def __init__(
        self,
        started: float,
        *,
        hello_patience_sec: float = HELLO_PATIENCE_SEC,
        listing_patience_sec: float = LISTING_PATIENCE_SEC,
        start_patience_sec: float = START_PATIENCE_SEC,
    ) -> None:
        self._started = started
        self._hello_patience_sec = hello_patience_sec
        self._listing_patience_sec = listing_patience_sec
        self._start_patience_sec = start_patience_sec
        self._listening = False
        self._last_hello = started
        self._last_listed = started
        self.proven = False
        """Whether the last probes found it at its port and at the tracker."""

    def began_to_listen(self, now: float) -> None:
        """Note that the server reported that it listens: from now on it must answer."""
        if not self._listening:
            self._listening = True
            self._last_hello = self._last_listed = now

    def observe(self, now: float, *, hello: bool, listed: bool | None) -> None:
        """Note the result of a probe.

        Args:
            now: The time.
            hello: Whether it answered at its port.
            listed: Whether the tracker lists it; None if the tracker does not answer, which is not the server's fault.
        """
        if hello:
            self._last_hello = now
        if listed is not False:
            self._last_listed = now
        self.proven = hello and listed is True

    def verdict(self, now: float) -> str | None:
        """Return why the server must be restarted; None if it need not."""
        if not self._listening:
            if now - self._started > self._start_patience_sec:
                return f"it did not listen within {self._start_patience_sec:g} s"
            return None
        if now - self._last_hello > self._hello_patience_sec:
            return f"it has not answered for {now - self._last_hello:.0f} s"
        if now - self._last_listed > self._listing_patience_sec:
            return f"the tracker has not listed it for {now - self._last_listed:.0f} s"
        return None
