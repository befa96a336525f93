"""When a request is sent again, and after how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

RETRIED_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter.

    Only what is safe is sent again: reads, requests with an idempotency key, content-addressed uploads; and
    anything where no connection was made, for then the server never saw it.

    Attributes:
        attempts: How often a request is sent at most, the first time counted.
        base_sec: Longest wait before the second attempt; it doubles with every further one.
        cap_sec: Longest wait of all.
        retry_after_cap_sec: Longest wait that a server's ``Retry-After`` can ask for.
    """

    attempts: int = 6
    base_sec: float = 0.25
    cap_sec: float = 8.0
    retry_after_cap_sec: float = 60.0

    def wait_sec(self, attempt: int, retry_after: str | None, random: Callable[[], float]) -> float:
        """Return how long to wait after the failure of attempt number `attempt` (from 1).

        Args:
            attempt: The attempt that failed.
            retry_after: The server's ``Retry-After`` header, in seconds; dates are ignored.
            random: Uniform in [0, 1).
        """
        if retry_after is not None and retry_after.strip().isdigit():
            return min(float(retry_after), self.retry_after_cap_sec)
        longest = min(self.base_sec * float(2 ** (attempt - 1)), self.cap_sec)
        return longest * (0.5 + 0.5 * random())


NO_RETRY = RetryPolicy(attempts=1)
