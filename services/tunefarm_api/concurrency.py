"""How many requests are under way at once: in this process, of one key, and of strangers. More are refused at once, with a time to come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tunefarm_tuning.core.errors import TransientError

_RETRY_SEC = 2
_SHARE_OF_A_KEY = 4
"""A key may have a quarter of all requests, so that one client leaves the farm to others."""

_IMPORTS_OF_A_KEY = 2
_SHARE_OF_STRANGERS = 8

_SHARE_OF_AN_ADDRESS = 4
"""An address may have a quarter of what strangers have, and of the requests whose key is being looked up."""


class RequestsUnderWay:
    """Counts requests from their first to their last byte. Used by the event loop's thread alone.

    Requests of keys, requests whose key is being looked up, and those that need none have a count each: whoever has no key
    takes no room from those who have.

    Args:
        limit: How many there may be in this process of keys; 0 for any number.

    Attributes:
        importing: Held by the import of records whose turn it is: all of its records are in memory.
    """

    def __init__(self, limit: int) -> None:
        self.importing = asyncio.Lock()
        self._limit = limit
        self._key_limit = max(limit // _SHARE_OF_A_KEY, 1)
        self._stranger_limit = max(limit // _SHARE_OF_STRANGERS, 1)
        self._counts: Counter[str] = Counter()
        self._of: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request of a key during the block.

        Raises:
            TransientError: ``overloaded``.
        """
        with self._counted("of keys", self._limit):
            yield

    @contextmanager
    def counted_unknown(self, address: str) -> Iterator[None]:
        """Count a request during the block, which looks for its key: that waits for no byte of the client.

        Raises:
            TransientError: ``overloaded``; ``too-many-at-once`` if the address has a quarter of them.
        """
        with (
            self._counted_of("unknown of", address, self._limit // _SHARE_OF_AN_ADDRESS),
            self._counted("unknown", self._limit),
        ):
            yield

    @contextmanager
    def counted_stranger(self, address: str) -> Iterator[None]:
        """Count a request that needs no key during the block; there may be an eighth as many as of keys.

        Raises:
            TransientError: ``overloaded``; ``too-many-at-once`` if the address has a quarter of them.
        """
        with (
            self._counted_of("stranger at", address, self._stranger_limit // _SHARE_OF_AN_ADDRESS),
            self._counted("of strangers", self._stranger_limit),
        ):
            yield

    @contextmanager
    def _counted(self, kind: str, limit: int) -> Iterator[None]:
        if self._limit and self._counts[kind] >= limit:
            raise TransientError(
                f"this server handles {limit} requests already, which is its limit: try again in {_RETRY_SEC} s",
                code="overloaded",
                retry_after_sec=_RETRY_SEC,
            )
        self._counts[kind] += 1
        try:
            yield
        finally:
            self._counts[kind] -= 1

    @contextmanager
    def counted_import(self, owner: str) -> Iterator[None]:
        """Count an import of records during the block for the owner of its key: it is on the disk until its turn comes.

        Raises:
            TransientError: ``too-many-at-once``.
        """
        with self._counted_of("imports of key", owner, _IMPORTS_OF_A_KEY):
            yield

    def imports(self, owner: str) -> int:
        """Return how many imports of an owner are under way."""
        return self._of["imports of key", owner]

    @contextmanager
    def counted_for(self, owner: str, kind: str = "requests") -> Iterator[None]:
        """Count a request during the block for the owner of its key: keys that were rotated share it.

        Args:
            owner: The owner.
            kind: Of the request; each kind has the whole limit.

        Raises:
            TransientError: ``too-many-at-once``.
        """
        with self._counted_of(f"{kind} of key", owner, self._key_limit):
            yield

    @contextmanager
    def _counted_of(self, kind: str, who: str, limit: int) -> Iterator[None]:
        limit = max(limit, 1)
        if self._limit and self._of[kind, who] >= limit:
            raise TransientError(
                f"this {'API key' if kind.endswith('key') else 'address'} has {limit} requests under way: try again when some have ended",
                code="too-many-at-once",
                limit=limit,
                retry_after_sec=_RETRY_SEC,
            )
        self._of[kind, who] += 1
        try:
            yield
        finally:
            self._of[kind, who] -= 1
            if not self._of[kind, who]:
                del self._of[kind, who]
