"""The messages of TVM's RPC protocol, without importing TVM.

Client to server: ``magic, length, "client:MATCHKEY -timeout=10"``; the server answers ``code, length, "server:KEY"``.
To the tracker: its magic, echoed; then frames of ``length, JSON``, one answer per request. All integers are little-endian 32 bits.
The numbers are TVM's (``tvm.rpc.base``); a contract test compares them.
"""

from __future__ import annotations

import json
import socket
import struct
from enum import IntEnum
from typing import Any

RPC_MAGIC = 0xFF271
TRACKER_MAGIC = 0x2F271
CODE_SUCCESS = RPC_MAGIC + 0
CODE_MISMATCH = RPC_MAGIC + 2

MAX_TRACKER_FRAME_BYTES = 4 << 20
"""Maximum size of a message: enough for a farm of thousands of devices, and a limit for peers that are no trackers."""

INT = struct.Struct("<i")

Address = tuple[str, int]


class TrackerCode(IntEnum):
    """Codes of the tracker's protocol (``tvm.rpc.base``, TVM 0.27)."""

    SUCCESS = 0
    PUT = 3
    REQUEST = 4
    UPDATE_INFO = 5
    SUMMARY = 6
    GET_PENDING_MATCHKEYS = 7


class WireError(OSError):
    """The peer does not speak the protocol."""


def pack_hello(key: str) -> bytes:
    """Return a client's hello."""
    data = key.encode()
    return INT.pack(RPC_MAGIC) + INT.pack(len(data)) + data


def pack_welcome(server_key: str) -> bytes:
    """Return a server's answer to a hello whose key is right."""
    data = f"server:{server_key}".encode()
    return INT.pack(CODE_SUCCESS) + INT.pack(len(data)) + data


def pack_frame(message: Any) -> bytes:
    """Return one frame for the tracker."""
    data = json.dumps(message).encode()
    return INT.pack(len(data)) + data


def unpack_frame(received: bytearray) -> tuple[bool, Any]:
    """Remove the first complete frame from `received`; return whether there was one, and its message.

    Raises:
        WireError: If this cannot be a tracker's frame.
    """
    if len(received) < INT.size:
        return False, None
    (length,) = INT.unpack_from(received)
    if not 0 < length <= MAX_TRACKER_FRAME_BYTES:
        raise WireError(f"a tracker's frame cannot have {length} bytes")
    if len(received) < INT.size + length:
        return False, None
    try:
        message = json.loads(received[INT.size : INT.size + length])
    except ValueError as error:
        raise WireError("a tracker's frame is not JSON") from error
    del received[: INT.size + length]
    return True, message


def parse_address(text: str) -> Address:
    """Read ``host:port`` (an IPv6 host in brackets or not).

    Raises:
        ValueError: If the text has another form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port, for example 127.0.0.1:9190")
    return host.strip("[]"), int(port)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes, under the socket's own timeout per read."""
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the peer closed the connection")
        received += chunk
    return bytes(received)
