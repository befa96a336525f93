"""Accept connections and read their hellos, many at once, each within a time limit.

A peer that says nothing, speaks nonsense or resets costs itself its connection and nobody else anything.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tunefarm_workers.device.rpc.wire import CODE_MISMATCH, INT, RPC_MAGIC

_MAX_KEY_BYTES = 4096
_HEADER_BYTES = 2 * INT.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A well-formed hello. The receiver of this object owns the connection.

    Attributes:
        match_key: The key that the client got from the tracker; or ``claim:`` and the device's own key.
        timeout_sec: The limit of its session that the client asked for, if it did.
        fence: Number of the lease that the client holds, if it said so.
    """

    connection: socket.socket
    peer: str
    match_key: str
    timeout_sec: float | None
    fence: int | None


@dataclass(slots=True, kw_only=True)
class _Visitor:
    connection: socket.socket
    peer: str
    until: float
    received: bytearray = field(default_factory=bytearray)


def accept(listener: socket.socket) -> tuple[socket.socket, str]:
    """Return the next connection of a listening socket, and its peer's address."""
    connection, address = listener.accept()
    return connection, f"{address[0]}:{address[1]}"


def receive_connection(holder: socket.socket) -> tuple[socket.socket, str]:
    """Return the next connection that the agent hands over, through a Unix socket that only it holds the other end of.

    Raises:
        OSError: If there is none.
    """
    _, descriptors, _, _ = socket.recv_fds(holder, 1, 1)
    if not descriptors:
        raise ConnectionResetError("the agent handed over nothing")
    return socket.socket(fileno=descriptors[0]), "gateway"


class FrontDoor:
    """Takes connections, and hands every well-formed hello to `on_hello`.

    Args:
        listener: A listening socket, or one that connections are handed over through; the door owns it from now on.
        take: `accept` or `receive_connection`, as fits the listener.
        selector: The loop's selector; each registration's data is the function to call.
        hello_sec: Time limit of a peer's hello.
        max_visitors: Maximum number of connections without a complete hello; one more closes the oldest.
    """

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        on_hello: Callable[[Hello], None],
        *,
        hello_sec: float = 5.0,
        max_visitors: int = 64,
        take: Callable[[socket.socket], tuple[socket.socket, str]] = accept,
    ) -> None:
        self._listener = listener
        self._selector = selector
        self._on_hello = on_hello
        self._hello_sec = hello_sec
        self._max_visitors = max_visitors
        self._take = take
        self._visitors: dict[int, _Visitor] = {}  # by descriptor; the oldest first
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def tick(self) -> None:
        """Close the connections that exceed the time limit."""
        now = time.monotonic()
        for visitor in [visitor for visitor in self._visitors.values() if visitor.until < now]:
            self._send_away(visitor)

    def close(self) -> None:
        for visitor in list(self._visitors.values()):
            self._send_away(visitor)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        # An OSError is a peer that reset before we came, or a full descriptor table: the next turn tries again.
        with contextlib.suppress(OSError):
            connection, peer = self._take(self._listener)
            connection.setblocking(False)
            if len(self._visitors) >= self._max_visitors:
                self._send_away(next(iter(self._visitors.values())))
            visitor = _Visitor(
                connection=connection,
                peer=peer,
                until=time.monotonic() + self._hello_sec,
            )
            self._visitors[connection.fileno()] = visitor
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(visitor))

    def _hear(self, visitor: _Visitor) -> None:
        try:
            wanted = _missing_bytes(visitor.received)
            chunk = visitor.connection.recv(wanted)
            visitor.received += chunk
            if not chunk:
                raise ConnectionResetError
            if _missing_bytes(visitor.received):
                return
            match_key, timeout_sec, fence = _parse(visitor.received[_HEADER_BYTES:])
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._send_away(visitor)
            return
        self._forget(visitor)
        self._on_hello(
            Hello(
                connection=visitor.connection,
                peer=visitor.peer,
                match_key=match_key,
                timeout_sec=timeout_sec,
                fence=fence,
            )
        )

    def _forget(self, visitor: _Visitor) -> None:
        del self._visitors[visitor.connection.fileno()]
        self._selector.unregister(visitor.connection)

    def _send_away(self, visitor: _Visitor) -> None:
        self._forget(visitor)
        visitor.connection.close()


def refuse(hello: Hello) -> None:
    """Answer, as TVM's server does, that the key is wrong or used, and close the connection."""
    with contextlib.suppress(OSError):
        hello.connection.sendall(INT.pack(CODE_MISMATCH))
    hello.connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Return whether a client that was not answered yet has hung up."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _missing_bytes(received: bytearray) -> int:
    """Return how many bytes of the hello are still missing.

    Raises:
        ValueError: If this is no hello.
    """
    if len(received) >= INT.size and INT.unpack_from(received)[0] != RPC_MAGIC:
        raise ValueError("not TVM's magic number")
    if len(received) < _HEADER_BYTES:
        return _HEADER_BYTES - len(received)
    (length,) = INT.unpack_from(received, INT.size)
    if not 0 < length <= _MAX_KEY_BYTES:
        raise ValueError("the key's length is out of range")
    return int(_HEADER_BYTES + length - len(received))


def _parse(data: bytes | bytearray) -> tuple[str, float | None, int | None]:
    words = bytes(data).decode("utf-8").split()  # a UnicodeDecodeError is a ValueError
    if not words or not words[0].startswith("client:"):
        raise ValueError("not a client's key")
    timeout_sec = fence = None
    for word in words[1:]:
        if word.startswith("-timeout="):
            timeout_sec = float(word.removeprefix("-timeout="))
            if not math.isfinite(timeout_sec):
                raise ValueError("no number of seconds")
        elif word.startswith("-fence="):
            fence = int(word.removeprefix("-fence=")[:20])
    # TVM's client says 0 for "no limit".
    return words[0].removeprefix("client:"), timeout_sec if timeout_sec and timeout_sec > 0 else None, fence
