"""How many requests a key may make: counted by the library `limits`, in Redis or Valkey where the farm has one, else in memory."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

import structlog
from limits import RateLimitItem, parse
from limits.errors import StorageError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import FixedWindowRateLimiter

from tunefarm_app.settings import Settings
from tunefarm_tuning.core.errors import TransientError

log = structlog.stdlib.get_logger(__name__)

_SHARED_SCHEMES = ("redis://", "rediss://", "redis+unix://")
_ANSWER_SEC = 0.3
_AWAY_SEC = 5.0


class TooManyRequestsError(TransientError):
    """The key has made too many requests. `retry_after_sec` says when it may go on."""

    default_code = "rate-limited"

    def __init__(self, rate: RateLimitItem, retry_after_sec: float) -> None:
        self.retry_after_sec = max(1, math.ceil(retry_after_sec))
        super().__init__(
            f"this API key may make {rate}: try again in {self.retry_after_sec} s",
            retry_after_sec=self.retry_after_sec,
        )


class KeyRates:
    """Counts the requests of each key. Concurrency: any number of threads; processes share their counts over the broker.

    Failure: while the broker is away, each process counts by itself.
    """

    def __init__(self, settings: Settings) -> None:
        self._rate = parse(settings.key_rate) if settings.key_rate else None
        self._own = FixedWindowRateLimiter(MemoryStorage())
        url = settings.broker_url.get_secret_value()
        self._shared = FixedWindowRateLimiter(_storage(url)) if url.startswith(_SHARED_SCHEMES) else None
        self._away_until = 0.0

    def count(self, key_id: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: If it is one too many.
        """
        if self._rate is None:
            return
        limiter = self._limiter()
        with suppress(StorageError):
            self._count(limiter, self._rate, key_id)
            return
        self._away_until = time.monotonic() + _AWAY_SEC
        log.warning("rates are counted by this process alone: the broker does not answer")
        self._count(self._own, self._rate, key_id)

    def _limiter(self) -> FixedWindowRateLimiter:
        is_away = time.monotonic() < self._away_until
        return self._own if self._shared is None or is_away else self._shared

    @staticmethod
    def _count(limiter: FixedWindowRateLimiter, rate: RateLimitItem, key_id: str) -> None:
        if limiter.hit(rate, "key", key_id):
            return
        ends_at = limiter.get_window_stats(rate, "key", key_id).reset_time
        raise TooManyRequestsError(rate, ends_at - time.time())


def _storage(url: str) -> Any:
    timeouts = {"socket_timeout": _ANSWER_SEC, "socket_connect_timeout": _ANSWER_SEC}
    return storage_from_string(url, wrap_exceptions=True, key_prefix="tunefarm-rate", **timeouts)
