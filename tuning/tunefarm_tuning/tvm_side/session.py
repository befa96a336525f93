"""Sessions with a device: this process's own, or one over TVM RPC.

The client side of RPC can block for ever (on a device that was switched off, say). So sessions are opened in child
processes only, whose parents hold the clock.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import rpc
from tvm.rpc import base

from tunefarm_tuning.errors import DeviceLostError
from tunefarm_tuning.untrusted_text import clean

_INT = struct.Struct("<i")
_uploads = itertools.count()


class DeviceSession:
    """Where kernels can be loaded and run. Made by `open_session` or `local_session`.

    Ownership: what comes from a remote session (modules, tensors, functions) keeps its connection open, and the device
    busy: let go of it before `close`.

    Attributes:
        host: Where the device listens, as its tracker says; empty for this very process.
    """

    def __init__(self, remote: Any | None, host: str = "") -> None:
        self._remote = remote
        self.host = host

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    def device(self, kind: str) -> Any:
        """Return TVM's device of a kind, ``"cpu"`` or ``"cuda"``."""
        return tvm.device(kind, 0) if self._remote is None else self._remote.device(kind, 0)

    def load(self, path: Path | str) -> Any:
        """Return a shared library of this machine as a module of the device."""
        if self._remote is None:
            return tvm.runtime.load_module(str(path))
        name = f"{next(_uploads)}-{Path(path).name}"
        self._remote.upload(str(path), name)
        return self._remote.load_module(name)

    def function(self, name: str) -> Any:
        """Return a function that is registered on the device by name."""
        return tvm.get_global_func(name) if self._remote is None else self._remote.get_function(name)

    def is_alive(self) -> bool:
        """Whether the other side still answers: a kernel that crashed took it along."""
        if self._remote is None:
            return True
        try:
            self._remote.get_function("tvm.rpc.server.workpath")("")
        except Exception:  # noqa: BLE001  (any error means no)
            return False
        return True

    def close(self) -> None:
        """Hang up: the device is free for the next session."""
        self._remote = None


def local_session() -> DeviceSession:
    """Return a session with this very process."""
    return DeviceSession(None)


def open_session(
    address: Mapping[str, Any], *, timeout_sec: float, connect_timeout_sec: float = 15.0
) -> DeviceSession:
    """Open a session with the device that has a key at a tracker.

    Args:
        address: ``tracker_host``, ``tracker_port`` and ``key``, as in `RemoteDevice.to_json`.
        timeout_sec: The device ends the session after this time, whatever it is doing.
        connect_timeout_sec: How long the tracker may take to give the device. The device itself can still
            keep us waiting for ever.

    Raises:
        DeviceLostError: If there is no such tracker, the device is not free, or it does not answer.
    """
    key = str(address["key"])
    tracker = (str(address["tracker_host"]), int(address["tracker_port"]))
    try:
        host, port, match_key = _request(tracker, key, connect_timeout_sec)
        session = DeviceSession(rpc.connect(host, port, match_key, session_timeout=timeout_sec), host)
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


def _request(tracker: tuple[str, int], key: str, timeout_sec: float) -> tuple[str, int, str]:
    """Ask a tracker for a device; return its host, its port and the key that it expects.

    TVM's own client has no time limit here. Also, it and the tracker send a message in two pieces, and TCP holds back
    the second until the first is acknowledged, which takes 40 ms unless it is asked to be quick.
    """
    with socket.create_connection(tracker, timeout=timeout_sec) as connection:
        connection.sendall(_INT.pack(base.RPC_TRACKER_MAGIC))
        if base.recvall(connection, _INT.size) != _INT.pack(base.RPC_TRACKER_MAGIC):
            raise ConnectionError(f"{tracker[0]}:{tracker[1]} is not a TVM tracker")
        request = json.dumps([base.TrackerCode.REQUEST, key, "", 1]).encode()
        connection.sendall(_INT.pack(len(request)) + request)
        if hasattr(socket, "TCP_QUICKACK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        code, answer = base.recvjson(connection)
        if code != base.TrackerCode.SUCCESS:
            raise ConnectionError(f"the tracker refused: {clean(str(answer))}")
        host, port, match_key = answer
        return str(host), int(port), str(match_key)
