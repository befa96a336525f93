"""A device's address from its tracker, without importing TVM. The numbers are TVM's (``tvm.rpc.base``); a test compares them."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.device_address import DeviceAddress

RPC_MAGIC, TRACKER_MAGIC = 0xFF271, 0x2F271
SUCCESS, REQUEST, SUMMARY = 0, 4, 6

_INT = struct.Struct("<i")
_MOST_ANSWER_BYTES = 4 << 20
_CLAIM_AFTER_SEC = 0.5
"""If a leased device is not free after this time, a former holder of the lease still uses it."""
_CLAIM_SEC = 3.0


def hello(key: str) -> bytes:
    """Return how a client begins: with the key of the server that it wants, and options."""
    data = f"client:{key}".encode()
    return _INT.pack(RPC_MAGIC) + _INT.pack(len(data)) + data


def request_device(address: DeviceAddress, timeout_sec: float, fence: int | None) -> tuple[str, int, str]:
    """Wait until the device is free; return its host, its port and the key that it expects.

    TVM's own client has no time limit here. It and the tracker also send a message in two packets, and TCP holds back
    the second one until the first is acknowledged, which takes 40 ms without ``TCP_QUICKACK``.

    Raises:
        TimeoutError: If it is not free within the time.
        OSError: If the tracker cannot be reached, or refuses.
        ValueError: If its answer cannot be read.
    """
    with _greeted(address, timeout_sec) as connection:
        _send(connection, [REQUEST, address.key, "", 1])
        if (
            fence is not None
            and not select.select([connection], [], [], min(_CLAIM_AFTER_SEC, timeout_sec))[0]
        ):
            _claim(address, fence)
        code, answer = _receive(connection)
        if code != SUCCESS:
            raise ConnectionError(f"the tracker refused: {clean(str(answer))}")
        host, port, match_key = answer
        return str(host), int(port), str(match_key)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes, under the socket's own timeout per read.

    Raises:
        OSError: If the connection ends before.
    """
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the other side closed the connection")
        received += piece
    return bytes(received)


def receive_int(connection: socket.socket) -> int:
    """Read a number as TVM writes it."""
    return int(_INT.unpack(receive_exactly(connection, _INT.size))[0])


def _claim(address: DeviceAddress, fence: int) -> None:
    """Have the device end the session of a former lease holder, such as a worker that froze."""
    # If this fails, the caller continues to wait for the tracker.
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        with _greeted(address, _CLAIM_SEC) as connection:
            _send(connection, [SUMMARY])
            _, summary = _receive(connection)
        for server in summary["server_info"]:
            if server["key"] != f"server:{address.key}":
                continue
            host, port = server["addr"]
            with socket.create_connection((host, int(port)), timeout=_CLAIM_SEC) as connection:
                connection.sendall(hello(f"claim:{address.key} -fence={fence}"))
                # It refuses the key and opens no session, but it has read the fence.
                connection.recv(_INT.size)


@contextmanager
def _greeted(address: DeviceAddress, timeout_sec: float) -> Iterator[socket.socket]:
    where = (address.tracker_host, address.tracker_port)
    with socket.create_connection(where, timeout=timeout_sec) as connection:
        connection.sendall(_INT.pack(TRACKER_MAGIC))
        if receive_int(connection) != TRACKER_MAGIC:
            raise ConnectionError(f"{where[0]}:{where[1]} is not a TVM tracker")
        yield connection


def _send(connection: socket.socket, question: list[Any]) -> None:
    data = json.dumps(question).encode()
    connection.sendall(_INT.pack(len(data)) + data)
    if hasattr(socket, "TCP_QUICKACK"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _receive(connection: socket.socket) -> Any:
    size = receive_int(connection)
    if not 0 < size <= _MOST_ANSWER_BYTES:
        raise ConnectionError(f"a tracker's answer cannot have {size} bytes")
    return json.loads(receive_exactly(connection, size))
