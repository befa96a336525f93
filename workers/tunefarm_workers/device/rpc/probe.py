"""Probe an RPC server as its users reach it, by a connection.

A process id proves nothing: TVM's own server lives on after its listener has died.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from typing import Any

from tunefarm_workers.device.rpc.wire import (
    CODE_MISMATCH,
    INT,
    TRACKER_MAGIC,
    Address,
    WireError,
    pack_frame,
    pack_hello,
    receive_exactly,
    unpack_frame,
)

TIMEOUT_SEC = 3.0


def answers_hello(server: Address, *, timeout_sec: float = TIMEOUT_SEC) -> bool:
    """Return whether the server at this address refuses a wrong key; this costs it nothing, even during a session."""
    return greets(lambda: socket.create_connection(server, timeout_sec), timeout_sec=timeout_sec)


def greets(connect: Callable[[], socket.socket], *, timeout_sec: float = TIMEOUT_SEC) -> bool:
    """Return whether the server at the end of such a connection refuses a wrong key. `connect` may raise `OSError`."""
    try:
        with connect() as connection:
            connection.settimeout(timeout_sec)
            connection.sendall(pack_hello(f"client:probe-{secrets.token_hex(8)}"))
            (code,) = INT.unpack(receive_exactly(connection, INT.size))
            return bool(code == CODE_MISMATCH)
    except OSError:
        return False


def ask_tracker(connection: socket.socket, question: list[Any]) -> Any:
    """Send the tracker a greeting and a request, and return its answer.

    Raises:
        OSError: If it does not answer, or is no tracker.
    """
    connection.sendall(INT.pack(TRACKER_MAGIC))
    if receive_exactly(connection, INT.size) != INT.pack(TRACKER_MAGIC):
        raise WireError("this is not a tracker")
    connection.sendall(pack_frame(question))
    received = bytearray()
    while True:
        is_complete, answer = unpack_frame(received)
        if is_complete:
            return answer
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("the tracker closed the connection")
        received += chunk
