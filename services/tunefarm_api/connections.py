"""What a peer may do to a connection before it has sent a whole request: how long it may wait, and how many connections it may have.

Everything here is before the application: a peer that says nothing costs a descriptor, and no more than `HEAD_SEC`.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tunefarm_app.access.rates import address_group

HEAD_SEC = 10.0
"""How long a request's line and headers may take to come, from the connection or from their first byte."""

MAX_HEADERS = 100
MAX_HEAD_BYTES = 64 << 10
_SPARE_FILES = 16
"""A sixteenth of the files that the process may open stay free of connections: for the database, the store and uploads."""

_REFUSAL = b"HTTP/1.1 %s\r\nContent-Type: application/problem+json\r\nRetry-After: 10\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


def allow_open_files() -> int:
    """Let this process open as many files as the system lets it; return their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


class Connections:
    """Counts open connections, in all and by address. Used by the event loop's thread alone.

    Args:
        per_address: How many one address may have; 0 for any number.
        trusted_proxies: Networks of proxies, which bring the connections of many: they are not counted by address.
        open_files: How many files the process may open.
    """

    def __init__(self, per_address: int, trusted_proxies: str = "", *, open_files: int) -> None:
        self._per_address = per_address
        self._most = open_files - open_files // _SPARE_FILES
        self._proxies = _networks(trusted_proxies)
        self._all = 0
        self._of: Counter[str] = Counter()

    def admit(self, address: str) -> str:
        """Count a connection; return why there may be no further one, empty if it was counted."""
        if self._all >= self._most:
            return "503 Service Unavailable"
        who = self._who(address)
        if who and self._per_address and self._of[who] >= self._per_address:
            return "429 Too Many Requests"
        self._all += 1
        if who:
            self._of[who] += 1
        return ""

    def release(self, address: str) -> None:
        """Count a connection that was admitted no more."""
        self._all -= 1
        if who := self._who(address):
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]

    def _who(self, address: str) -> str:
        try:
            parsed = ip_address(address)
        except ValueError:
            return ""
        if any(parsed in network for network in self._proxies):
            return ""
        return address_group(address)


def _networks(text: str) -> Collection[IPv4Network | IPv6Network]:
    return [ip_network(part.strip()) for part in text.split(",") if part.strip()]


def limited_protocol(connections: Connections) -> type[H11Protocol]:
    """Return uvicorn's protocol with these limits."""

    class LimitedProtocol(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _is_admitted = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            refusal = connections.admit(self._address)
            if refusal:
                self._refuse(refusal)
                return
            self._is_admitted = True
            self._watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            if self._is_admitted:
                self._is_admitted = False
                connections.release(self._address)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self._is_admitted:
                return
            super().data_received(data)
            if self._is_busy:
                self._stop_timer()
            elif self._head_timer is None and not self.transport.is_closing():
                self._watch_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing() and self.conn.trailing_data[0] and not self._is_busy:
                self._watch_head()  # the next request has begun already

        @property
        def _address(self) -> str:
            return self.client[0] if self.client else ""

        @property
        def _is_busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def _watch_head(self) -> None:
            self._stop_timer()
            self._head_timer = self.loop.call_later(HEAD_SEC, self._end_late_head)

        def _stop_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _end_late_head(self) -> None:
            self._head_timer = None
            if not self._is_busy and not self.transport.is_closing():
                self._refuse("408 Request Timeout")

        def _refuse(self, status: str) -> None:
            number, _, title = status.partition(" ")
            body = b'{"status": %s, "title": "%s"}' % (number.encode(), title.encode())
            self.transport.write(_REFUSAL % (status.encode(), len(body), body))
            self.transport.close()

    return LimitedProtocol
