"""Decide whether and when a request is sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter.

    Only safe requests are repeated: reads, requests with an idempotency key, content-addressed uploads, and any request
    without a connection, since the server never saw it.

    Attributes:
        attempts: Maximum number of attempts, including the first.
        base_sec: Longest wait before the second attempt, in seconds; it doubles for each further attempt.
        cap_sec: Upper limit of the wait, in seconds.
        retry_after_cap_sec: Longest accepted ``Retry-After`` of a server, in seconds.
    """

    attempts: int = 6
    base_sec: float = 0.25
    cap_sec: float = 8.0
    retry_after_cap_sec: float = 60.0

    def wait_sec(self, attempt: int, retry_after: str | None, random: Callable[[], float]) -> float:
        """Return the seconds to wait after the failure of attempt number `attempt` (from 1).

        Args:
            attempt: The attempt that failed.
            retry_after: The server's ``Retry-After`` header: seconds, or a date.
            random: Uniform in [0, 1).
        """
        asked_sec = None if retry_after is None else _seconds(retry_after.strip())
        if asked_sec is not None:
            return min(asked_sec, self.retry_after_cap_sec)
        longest = min(self.base_sec * float(2 ** (attempt - 1)), self.cap_sec)
        return longest * (0.5 + 0.5 * random())


def _seconds(retry_after: str) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for; None if it is invalid or in the past."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        left_sec = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):  # not a date, or a date without a zone
        return None
    return left_sec if left_sec > 0 else None


NO_RETRY = RetryPolicy(attempts=1)
