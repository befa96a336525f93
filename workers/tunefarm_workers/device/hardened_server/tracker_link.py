"""The server's link to the tracker: offers the device under a fresh match key, and reconnects after outages.

Nothing here waits: connecting, asking and answering are turns of the event loop, so that a frozen tracker does not freeze
the server.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from tunefarm_workers.device.rpc.wire import (
    INT,
    TRACKER_MAGIC,
    Address,
    TrackerCode,
    WireError,
    pack_frame,
    unpack_frame,
)

REPLY_SEC = 5.0
RETRY_FIRST_SEC = 0.25
RETRY_MOST_SEC = 3.0
CHECK_EVERY_SEC = 2.0
UNUSED_KEY_SEC = 6.0
"""A key that the tracker gave to a client that never came is replaced after this time, as in TVM's server."""

_MAX_OFFERS = 1000
"""Offers per connection: the tracker remembers all of them until the connection ends."""


class _State(Enum):
    AWAY = auto()
    CONNECTING = auto()
    GREETING = auto()  # our magic number is sent
    INTRODUCING = auto()  # our name and address are sent
    IDLE = auto()
    OFFERING = auto()  # a match key is sent
    CHECKING = auto()  # asked which match keys are still unused


class StandingOffer:
    """What takes the place of a tracker's link where the agent hands over the connections: one key, always.

    Attributes:
        match_key: The key that clients must bring.
    """

    may_wait = True

    def __init__(self, rpc_key: str) -> None:
        self.match_key: str | None = rpc_key

    def offer(self) -> None: ...
    def withdraw(self) -> None: ...
    def tick(self) -> None: ...
    def close(self) -> None: ...


class TrackerLink:
    """Registers the server at the tracker and offers the device there.

    Args:
        tracker: The tracker's address.
        selector: The loop's selector; each registration's data is the function to call.
        rpc_key: The key that workers ask the tracker for.
        port: The server's port.
        advertised_host: The host that workers connect to; None lets the tracker take the address that it sees.
        on_change: Called with True when the tracker knows us, False when the link broke.

    Attributes:
        match_key: The key that the next client must bring; None while there is no offer.
        may_wait: Whether a client may wait here for the running session's end; clients of a tracker wait there.
    """

    may_wait = False

    def __init__(
        self,
        tracker: Address,
        selector: selectors.BaseSelector,
        *,
        rpc_key: str,
        port: int,
        advertised_host: str | None = None,
        on_change: Callable[[bool], None],
    ) -> None:
        self._tracker = tracker
        self._selector = selector
        self._rpc_key = rpc_key
        self._port = port
        self._advertised_host = advertised_host
        self._on_change = on_change
        self._state = _State.AWAY
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._reply_until = 0.0
        self._retry_at = 0.0
        self._retry_sec = RETRY_FIRST_SEC
        self._check_at = 0.0
        self._unused_since: float | None = None
        self._offers = 0
        self._offering = True
        self.match_key: str | None = None

    def offer(self) -> None:
        """Offer the device to the next client, under a fresh key."""
        self._offering = True
        self.match_key = None

    def withdraw(self) -> None:
        """Withdraw the device until the next `offer`, because a client has it."""
        self._offering = False
        self.match_key = None

    def tick(self) -> None:
        """Connect, offer or time out, as due."""
        now = time.monotonic()
        if self._state is _State.AWAY:
            if now >= self._retry_at:
                self._connect()
        elif self._state is not _State.IDLE:
            if now >= self._reply_until:
                self._break()
        elif self._offering and self.match_key is None:
            if self._offers >= _MAX_OFFERS:
                self._break()
                self._retry_at = now
            else:
                self._make_offer()
        elif self._offering and now >= self._check_at:
            self._check_at = now + CHECK_EVERY_SEC
            self._ask(_State.CHECKING, [TrackerCode.GET_PENDING_MATCHKEYS])

    def close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        self._state = _State.AWAY
        self.match_key = None

    def _connect(self) -> None:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(*self._tracker, type=socket.SOCK_STREAM)[
                0
            ]
            self._socket = socket.socket(family, kind, protocol)
        except OSError:
            self._schedule_retry()
            return
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received.clear()
        self._offers = 0
        self._state = _State.CONNECTING
        self._reply_until = time.monotonic() + REPLY_SEC
        self._selector.register(self._socket, selectors.EVENT_WRITE, self._on_ready)
        if self._socket.connect_ex(address) not in (0, errno.EINPROGRESS):
            self._break()

    def _on_ready(self) -> None:
        try:
            self._advance()
        except (OSError, WireError, LookupError, TypeError):
            self._break()

    def _advance(self) -> None:
        assert self._socket is not None
        if self._state is _State.CONNECTING:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect to the tracker")
            self._selector.modify(self._socket, selectors.EVENT_READ, self._on_ready)
            self._send(_State.GREETING, INT.pack(TRACKER_MAGIC))
            return
        with contextlib.suppress(BlockingIOError):
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the tracker closed the connection")
            self._received += chunk
        if self._state is _State.GREETING:
            if len(self._received) < INT.size:
                return
            if INT.unpack_from(self._received)[0] != TRACKER_MAGIC:
                raise WireError("this is not a tracker")
            del self._received[: INT.size]
            address = [self._advertised_host, self._port]
            self._ask(
                _State.INTRODUCING,
                [TrackerCode.UPDATE_INFO, {"key": f"server:{self._rpc_key}", "addr": address}],
            )
            return
        is_complete, message = unpack_frame(self._received)
        if is_complete:
            self._take_answer(message)

    def _take_answer(self, message: Any) -> None:
        state, self._state = self._state, _State.IDLE
        if state is _State.CHECKING:
            self._take_pending_keys(message)
        elif message != TrackerCode.SUCCESS:
            raise WireError("the tracker refused")
        elif state is _State.INTRODUCING:
            self._retry_sec = RETRY_FIRST_SEC
            self._on_change(True)
        elif state is _State.IDLE:
            raise WireError("a response without a request")
        self.tick()

    def _take_pending_keys(self, pending: list[str]) -> None:
        if self.match_key is None or self.match_key in pending:
            self._unused_since = None
            return
        now = time.monotonic()
        self._unused_since = self._unused_since or now
        if now - self._unused_since >= UNUSED_KEY_SEC:
            self.match_key = None

    def _make_offer(self) -> None:
        # Stored before it is sent: a client can come before the tracker's answer.
        self.match_key = f"{self._rpc_key}:{secrets.token_hex(16)}"
        self._unused_since = None
        self._check_at = time.monotonic() + CHECK_EVERY_SEC
        self._offers += 1
        self._ask(
            _State.OFFERING,
            [TrackerCode.PUT, self._rpc_key, [self._port, self.match_key], self._advertised_host],
        )

    def _ask(self, state: _State, message: list[Any]) -> None:
        self._send(state, pack_frame(message))

    def _send(self, state: _State, data: bytes) -> None:
        assert self._socket is not None
        self._state = state
        self._reply_until = time.monotonic() + REPLY_SEC
        try:
            # A single short request always fits the socket's buffer.
            self._socket.sendall(data)
        except OSError:
            self._break()

    def _break(self) -> None:
        known = self._state not in (_State.CONNECTING, _State.GREETING, _State.INTRODUCING)
        self.close()
        self._schedule_retry()
        if known:
            self._on_change(False)

    def _schedule_retry(self) -> None:
        self._retry_at = time.monotonic() + self._retry_sec
        self._retry_sec = min(2 * self._retry_sec, RETRY_MOST_SEC)
