"""Probe an RPC server as its users reach it, by a connection.

A process id proves nothing: TVM's own server lives on after its listener has died.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

from tunefarm_workers.device.rpc.wire import (
    CODE_MISMATCH,
    INT,
    pack_hello,
    receive_exactly,
)

TIMEOUT_SEC = 3.0


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
