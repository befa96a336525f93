"""Decide whether an RPC server lives, and when to stop waiting for it. Pure."""

from __future__ import annotations

HELLO_PATIENCE_SEC = 6.0
START_PATIENCE_SEC = 90.0


class Liveness:
    """Judges a process of the server by its answers.

    Args:
        started: When it was started; all times are of one monotonic clock.
        hello_patience_sec: Longest time without an answer at its door.
        start_patience_sec: Longest time until it listens.
    """

    def __init__(
        self,
        started: float,
        *,
        hello_patience_sec: float = HELLO_PATIENCE_SEC,
        start_patience_sec: float = START_PATIENCE_SEC,
    ) -> None:
        self._started = started
        self._hello_patience_sec = hello_patience_sec
        self._start_patience_sec = start_patience_sec
        self._listening = False
        self._last_hello = started
        self.proven = False
        """Whether the last probe found it at its door, and the gateway connected."""

    def began_to_listen(self, now: float) -> None:
        """Note that the server reported that it listens: from now on it must answer."""
        if not self._listening:
            self._listening = True
            self._last_hello = now

    def observe(self, now: float, *, hello: bool, connected: bool) -> None:
        """Note the result of a probe.

        Args:
            now: The time.
            hello: Whether it answered at its door.
            connected: Whether the agent is connected with the gateway; if it is not, that is not the server's fault.
        """
        if hello:
            self._last_hello = now
        self.proven = hello and connected

    def verdict(self, now: float) -> str | None:
        """Return why the server must be restarted; None if it need not."""
        if not self._listening:
            if now - self._started > self._start_patience_sec:
                return f"it did not listen within {self._start_patience_sec:g} s"
            return None
        if now - self._last_hello > self._hello_patience_sec:
            return f"it has not answered for {now - self._last_hello:.0f} s"
        return None
