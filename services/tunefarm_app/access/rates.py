"""How many requests a key, or an address without one, may make: counted by the library `limits`.

Requests of keys are counted in Redis or Valkey where the farm has one, so by all API processes together. Those without a key are counted
in memory alone: a stranger shall not make the API write to its broker.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from ipaddress import IPv6Address, ip_address, ip_network
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


_LIVES = parse("30/minute")
"""An agent registers once in each of its lives, and asks for a certificate twice a day. Each is an entry of the audit log, which keeps it."""
_LIFE = "a device's credential may register and be certified"
_KEY = "this API key may make"
_STRANGER = "without a valid API key, this address may make"
_ATTEMPT = "this address may try keys, sign-ins and enrolments"
_SHARED_BITS = 64
"""Who has one IPv6 address has at least all with its first half."""


class TooManyRequestsError(TransientError):
    """A key, or an address, has made too many requests. `retry_after_sec` says when it may go on."""

    default_code = "rate-limited"

    def __init__(self, may: str, rate: RateLimitItem, retry_after_sec: float) -> None:
        self.retry_after_sec = max(1, math.ceil(retry_after_sec))
        super().__init__(
            f"{may} {rate}: try again in {self.retry_after_sec} s", retry_after_sec=self.retry_after_sec
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
        log.warning("only this process counts rates: the broker does not answer")
        self._count(self._own, self._rate, key_id)

    def count_life(self, key_id: str) -> None:
        """Count a registration or a certificate of a device's own credential; each process counts by itself.

        Raises:
            TooManyRequestsError: If it is one too many.
        """
        if self._rate is not None and not self._own.hit(_LIVES, "life", key_id):
            raise _too_many(self._own, _LIVES, "life", key_id, _LIFE)

    def _limiter(self) -> FixedWindowRateLimiter:
        is_away = time.monotonic() < self._away_until
        return self._own if self._shared is None or is_away else self._shared

    @staticmethod
    def _count(limiter: FixedWindowRateLimiter, rate: RateLimitItem, key_id: str) -> None:
        if not limiter.hit(rate, "key", key_id):
            raise _too_many(limiter, rate, "key", key_id, _KEY)


class StrangerRates:
    """Counts what comes without a valid key, by address. Concurrency: any number of threads; each process counts by itself."""

    def __init__(self, settings: Settings) -> None:
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._requests = parse(settings.stranger_rate) if settings.stranger_rate else None
        self._attempts = parse(settings.attempt_rate) if settings.attempt_rate else None

    def count_request(self, address: str, kind: str) -> None:
        """Count a request; each `kind` has the whole rate, so that one does not use up what another needs.

        Raises:
            TooManyRequestsError: If it is one too many.
        """
        self._count(self._requests, f"request-{kind}", address, _STRANGER)

    def count_attempt(self, address: str, kind: str) -> None:
        """Count an attempt to be let in; each `kind` has the whole rate: devices with ended credentials keep nobody from signing in.

        Raises:
            TooManyRequestsError: If it is one too many.
        """
        self._count(self._attempts, f"attempt-{kind}", address, _ATTEMPT)

    def _count(self, rate: RateLimitItem | None, kind: str, address: str, may: str) -> None:
        who = address_group(address)
        if rate is not None and not self._limiter.hit(rate, kind, who):
            raise _too_many(self._limiter, rate, kind, who, may)


def address_group(address: str) -> str:
    """Return what an address is counted as: itself, or of IPv6 the network that one customer gets; ``""`` for none."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((int(parsed), _SHARED_BITS), strict=False))
    return str(parsed)


def _too_many(
    limiter: FixedWindowRateLimiter, rate: RateLimitItem, kind: str, who: str, may: str
) -> TooManyRequestsError:
    ends_at = limiter.get_window_stats(rate, kind, who).reset_time
    return TooManyRequestsError(may, rate, ends_at - time.time())


def _storage(url: str) -> Any:
    timeouts = {"socket_timeout": _ANSWER_SEC, "socket_connect_timeout": _ANSWER_SEC}
    return storage_from_string(url, wrap_exceptions=True, key_prefix="tunefarm-rate", **timeouts)
