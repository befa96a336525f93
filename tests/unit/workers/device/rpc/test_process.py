"""The agent's side of its RPC server: what comes through a connection to a session."""

from __future__ import annotations

import socket
import sys

import pytest

from tunefarm_workers.device.rpc.process import RpcProcess

SENDS = r"""
import socket, sys
door = socket.socket(fileno=int(sys.argv[-1].removeprefix("--door=")))
_, (descriptor,), _, _ = socket.recv_fds(door, 1, 1)
session = socket.socket(fileno=descriptor)
session.sendall(b"bytes ")
try:
    socket.send_fds(session, [b"sent"], [1])
except PermissionError:
    session.sendall(b"refused")
"""


def _knows_pass_rights() -> bool:
    near, far = socket.socketpair()
    with near, far:
        try:
            return near.getsockopt(socket.SOL_SOCKET, 83) == 1
        except OSError:
            return False


@pytest.mark.skipif(not _knows_pass_rights(), reason="needs Linux 6.16")
def test_a_session_cannot_leave_open_files_in_the_agents_end() -> None:
    """A session on a GPU may call what sends them: CUDA's driver does."""
    process = RpcProcess([sys.executable, "-c", SENDS], {})
    try:
        with process.connect() as connection:
            connection.settimeout(30.0)
            received = b""
            while piece := connection.recv(100):
                received += piece
    finally:
        process.end(grace_sec=0.0)
    assert received == b"bytes refused"
