"""Connections to a farm's gateway, where workers and devices meet: TLS, messages, and bytes that are passed on.

Both sides dial the gateway. Each begins with a message, a JSON object after its length; a device's first connection goes on with messages
(`Conversation`), and a session's connection with TVM's bytes (`carry`).
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

GATEWAY_NAME = "gateway.tunefarm.internal"
"""The name in the gateway's certificate, wherever it runs: the farm's own authority signs nothing else with a name."""

_LENGTH = struct.Struct(">H")
_MOST_MESSAGE_BYTES = 8192
_PIECE_BYTES = 1 << 20
_ANSWER_SEC = 10.0
PING_SEC = 5.0
SILENCE_SEC = 15.0
"""A side of a conversation that has sent nothing for so long, not even a ping, is gone."""

_STUCK_SEC = 300.0
"""A side of a session that takes no byte for so long ends it."""

_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))

Check = Callable[[memoryview], Iterable[bytes | memoryview]]


class BadMessageError(ConnectionError):
    """The other side sent no message of ours."""


def client_context(authority: str) -> ssl.SSLContext:
    """Return the TLS settings of a client of the gateway, without a certificate of its own.

    Args:
        authority: The certificate of the farm's authority, as PEM. No other is trusted.

    Raises:
        ssl.SSLError: If it cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    return context


def dial(host: str, port: int, context: ssl.SSLContext, *, timeout_sec: float) -> ssl.SSLSocket:
    """Connect to the gateway; the timeout stays the connection's.

    Raises:
        OSError: If it cannot be reached, or is not the farm's.
    """
    connection = socket.create_connection((host, port), timeout=timeout_sec)
    try:
        watch_peer(connection)
        return context.wrap_socket(connection, server_hostname=GATEWAY_NAME)
    except BaseException:
        connection.close()
        raise


def watch_peer(connection: socket.socket) -> None:
    """Let the kernel notice a peer that vanished, and send small pieces at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def hang_up(connection: socket.socket) -> None:
    """End a connection that another thread may be using: that thread sees its end, and closes it."""
    with contextlib.suppress(OSError):
        # Not the method of TLS sockets, which takes the encryption away from the other thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def send_message(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message.

    Raises:
        OSError: If the other side is gone.
        ValueError: If the message is too long.
    """
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > _MOST_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(data)} bytes")
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(connection: socket.socket) -> dict[str, Any]:
    """Receive one message.

    Raises:
        OSError: If the other side is gone, or sent something else (`BadMessageError`).
    """
    (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    if size > _MOST_MESSAGE_BYTES:
        raise BadMessageError(f"a message of {size} bytes")
    try:
        message = json.loads(_receive(connection, size))
    except (ValueError, RecursionError):
        raise BadMessageError("a message that is not JSON") from None
    if not isinstance(message, dict):
        raise BadMessageError("a message that is not an object")
    return message


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (piece := connection.recv(size - len(data))):
            raise ConnectionResetError("the other side closed the connection")
        data += piece
    return bytes(data)


def _as_it_is(piece: memoryview) -> Iterable[memoryview]:
    return (piece,)


def carry(
    left: socket.socket, right: socket.socket, *, to_right: Check = _as_it_is, to_left: Check = _as_it_is
) -> None:
    """Pass on both directions until either side ends. The caller closes both.

    Args:
        left: One side, with TLS or without; neither blocks from now on.
        right: The other.
        to_right: Yields what may be passed on of a piece from the left.
        to_left: The same of the right.

    Raises:
        OSError: If a side broke.
    """
    buffer = memoryview(bytearray(_PIECE_BYTES))
    poll = select.poll()
    routes = {}
    for source, sink, check in ((left, right, to_right), (right, left, to_left)):
        source.setblocking(False)
        poll.register(source, select.POLLIN)
        # What TLS has decrypted already wakes no poll.
        pending = source.pending if isinstance(source, ssl.SSLSocket) else int
        routes[source.fileno()] = (source, sink, check, pending)
    while True:
        for descriptor, _ in poll.poll():
            source, sink, check, pending = routes[descriptor]
            is_more = True
            while is_more:
                try:
                    size = source.recv_into(buffer)
                except ssl.SSLWantWriteError:  # TLS has to answer first, a change of keys, say
                    _wait_to_send(source)
                    continue
                except _NOT_YET:  # it was a part of a TLS record, which must keep nobody waiting
                    break
                if not size:
                    return
                for piece in check(buffer[:size]):
                    _send(sink, piece)
                is_more = pending() > 0


def _send(sink: socket.socket, piece: bytes | memoryview) -> None:
    """Send all of a piece on a connection that does not block.

    Raises:
        OSError: If the other side is gone, or takes no byte for too long.
    """
    left = memoryview(piece)
    while left:
        try:
            left = left[sink.send(left) :]
        except _NOT_YET:
            _wait_to_send(sink)


def _wait_to_send(connection: socket.socket) -> None:
    """Wait until a connection takes bytes.

    Raises:
        TimeoutError: If it takes none for too long.
    """
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(1000 * _STUCK_SEC):
        raise TimeoutError("the other side takes nothing")


class Conversation:
    """Messages of both sides, at any time. Both send pings, so that each knows whether the other is there.

    Concurrency: `run` in one thread, which alone touches the connection; `post` and `end` from any.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = time.monotonic()
        self._has_heard = False
        self._posted: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        for side in (self._wake, self._woken):
            side.setblocking(False)

    @property
    def is_heard(self) -> bool:
        """Whether the other side is there: it sent something within the last seconds."""
        return self._has_heard and time.monotonic() - self._heard <= SILENCE_SEC

    def post(self, message: Mapping[str, Any]) -> None:
        """Have a message sent soon; without effect after the end."""
        with self._lock:
            self._posted.append(message)
        with contextlib.suppress(OSError):  # as many wake-ups wait already as fit in, or it is closed
            self._wake.send(b"x")

    def end(self) -> None:
        """Make `run` return."""
        hang_up(self._connection)

    def run(self, on_message: Callable[[Mapping[str, Any]], None], *, until: float = float("inf")) -> None:
        """Serve until the other side is gone, or the time `until` (of `time.monotonic`) is.

        Args:
            on_message: Takes each message that is no ping. What it raises ends the conversation.
            until: When to end.
        """
        self._connection.settimeout(_ANSWER_SEC)
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        self._heard = ping_at = time.monotonic()
        try:
            while (now := time.monotonic()) < until:
                if now - self._heard > SILENCE_SEC:
                    raise TimeoutError("the other side is silent")
                if now >= ping_at:
                    send_message(self._connection, {"ping": True})
                    ping_at = now + PING_SEC
                ready = dict(poll.poll(1000 * min(ping_at - now, until - now)))
                if self._woken.fileno() in ready:
                    self._send_posted()
                if self._connection.fileno() in ready:
                    is_more = True
                    while is_more:
                        message = receive_message(self._connection)
                        self._heard, self._has_heard = time.monotonic(), True
                        if "ping" not in message:
                            on_message(message)
                        is_more = (
                            isinstance(self._connection, ssl.SSLSocket) and self._connection.pending() > 0
                        )
        finally:
            self._wake.close()
            self._woken.close()

    def _send_posted(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with self._lock:
            posted, self._posted = self._posted, []
        for message in posted:
            send_message(self._connection, message)
