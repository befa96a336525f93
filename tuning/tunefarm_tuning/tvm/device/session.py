"""Sessions with a device: this process itself, or another machine over TVM RPC.

The client side of RPC can block for ever, for example on a device that was switched off. So sessions are opened only in child
processes, whose parents watch the clock.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import rpc
from tvm.rpc import base

from tunefarm_tuning.core.errors import DeviceLostError, InvariantError
from tunefarm_tuning.core.untrusted_text import clean

_INT = struct.Struct("<i")

_CLAIM_AFTER_SEC = 0.5
"""If a leased device is not free after this time, a former holder of the lease still uses it."""
_CLAIM_SEC = 3.0

_uploads = itertools.count()


class DeviceSession:
    """A device on which kernels can be loaded and run. `open_session` and `local_session` make one.

    Ownership: objects of a remote session (modules, tensors, functions) keep its connection open, and the device busy.
    Release them before `close`.

    Attributes:
        host: Address of the device, from its tracker; empty for this process.
        port: The port there; 0 for this process.
    """

    def __init__(self, remote: Any | None, host: str = "", port: int = 0) -> None:
        self._remote = remote
        self.host, self.port = host, port

    @property
    def is_local(self) -> bool:
        """Whether the device is this process."""
        return self._remote is None

    def device(self, kind: str) -> Any:
        """Return TVM's device of a kind, ``"cpu"`` or ``"cuda"``."""
        return tvm.device(kind, 0) if self._remote is None else self._remote.device(kind, 0)

    def load(self, path: Path | str) -> Any:
        """Load a shared library of this machine on the device; return its module."""
        if self._remote is None:
            return tvm.runtime.load_module(str(path))
        return self._remote.load_module(self.upload(path))

    def upload(self, path: Path | str) -> str:
        """Send a file of this machine to a remote session; return its name in the session's working folder."""
        if self._remote is None:
            raise InvariantError("there is no other side to upload to")
        name = f"{next(_uploads)}-{Path(path).name}"
        self._remote.upload(str(path), name)
        return name

    def function(self, name: str) -> Any:
        """Return a function that is registered on the device under a name."""
        return tvm.get_global_func(name) if self._remote is None else self._remote.get_function(name)

    def is_alive(self) -> bool:
        """Return whether the other side still answers; a crash of a kernel ends the session."""
        if self._remote is None:
            return True
        try:
            self._remote.get_function("tvm.rpc.server.workpath")("")
        except Exception:  # noqa: BLE001  (any error means no)
            return False
        return True

    def close(self) -> None:
        """Close the connection; the device is free for the next session."""
        self._remote = None


def local_session() -> DeviceSession:
    """Return a session with this process."""
    return DeviceSession(None)


def open_session(
    address: Mapping[str, Any], *, timeout_sec: float, connect_timeout_sec: float = 15.0
) -> DeviceSession:
    """Open a session with the device that has a key at a tracker.

    Args:
        address: ``tracker_host``, ``tracker_port``, ``key`` and ``fence``, as in `RemoteDevice.to_json`.
        timeout_sec: After this time the device ends the session in any case.
        connect_timeout_sec: Time limit for the tracker to assign the device. The device itself can still block for ever.

    Raises:
        DeviceLostError: If the tracker cannot be reached, or the device is not free or does not answer.
    """
    key = str(address["key"])
    tracker = (str(address["tracker_host"]), int(address["tracker_port"]))
    fence = address.get("fence")
    try:
        host, port, match_key = _request(tracker, key, connect_timeout_sec, fence)
        # Options follow the key in a client's hello; TVM's own server ignores those that it does not know.
        hello = match_key if fence is None else f"{match_key} -fence={int(fence)}"
        session = DeviceSession(rpc.connect(host, port, hello, session_timeout=timeout_sec), host, port)
    except TimeoutError as error:
        raise DeviceLostError(
            f"device {clean(key)} was not free at its tracker within {connect_timeout_sec:g} s"
        ) from error
    except Exception as error:
        raise DeviceLostError(
            f"cannot open a session with device {clean(key)}: {clean(str(error), 300)}"
        ) from error
    if not session.is_alive():
        raise DeviceLostError(f"device {clean(key)} opened a session, but does not answer in it")
    return session


def _request(
    tracker: tuple[str, int], key: str, timeout_sec: float, fence: int | None
) -> tuple[str, int, str]:
    """Ask a tracker for a device; return its host, its port and the key that it expects.

    TVM's own client has no time limit here. It and the tracker also send a message in two packets, and TCP holds back
    the second one until the first is acknowledged, which takes 40 ms without ``TCP_QUICKACK``.
    """
    with _greet(tracker, timeout_sec) as connection:
        _send(connection, [base.TrackerCode.REQUEST, key, "", 1])
        if (
            fence is not None
            and not select.select([connection], [], [], min(_CLAIM_AFTER_SEC, timeout_sec))[0]
        ):
            _claim(tracker, key, fence)
        code, answer = base.recvjson(connection)
        if code != base.TrackerCode.SUCCESS:
            raise ConnectionError(f"the tracker refused: {clean(str(answer))}")
        host, port, match_key = answer
        return str(host), int(port), str(match_key)


def _claim(tracker: tuple[str, int], key: str, fence: int) -> None:
    """Have the device end the session of a former lease holder, such as a worker that froze."""
    # If this fails, the caller continues to wait for the tracker.
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        with _greet(tracker, _CLAIM_SEC) as connection:
            _send(connection, [base.TrackerCode.SUMMARY])
            _, summary = base.recvjson(connection)
        for server in summary["server_info"]:
            if server["key"] != f"server:{key}":
                continue
            host, port = server["addr"]
            hello = f"client:claim:{key} -fence={int(fence)}".encode()
            with socket.create_connection((host, int(port)), timeout=_CLAIM_SEC) as connection:
                connection.sendall(_INT.pack(base.RPC_MAGIC) + _INT.pack(len(hello)) + hello)
                connection.recv(
                    _INT.size
                )  # it refuses the key and opens no session, but it has read the fence


def _greet(tracker: tuple[str, int], timeout_sec: float) -> socket.socket:
    connection = socket.create_connection(tracker, timeout=timeout_sec)
    try:
        connection.sendall(_INT.pack(base.RPC_TRACKER_MAGIC))
        if base.recvall(connection, _INT.size) != _INT.pack(base.RPC_TRACKER_MAGIC):
            raise ConnectionError(f"{tracker[0]}:{tracker[1]} is not a TVM tracker")
    except BaseException:
        connection.close()
        raise
    return connection


def _send(connection: socket.socket, question: list[Any]) -> None:
    data = json.dumps(question).encode()
    connection.sendall(_INT.pack(len(data)) + data)
    if hasattr(socket, "TCP_QUICKACK"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
