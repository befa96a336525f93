"""Sessions with a device: this process's own, or one over TVM RPC.

The client side of RPC can block for ever (a key that no device has, a device that was switched off). So
sessions are opened in child processes only, whose parents hold the clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import rpc

from tunefarm_tuning.errors import DeviceLostError
from tunefarm_tuning.untrusted_text import clean

_uploads = itertools.count()


class DeviceSession:
    """Where kernels can be loaded and run. Made by `open_session` or `local_session`.

    Ownership: what comes from a remote session (modules, tensors, functions) keeps its connection open, and the device
    busy: let go of it before `close`.
    """

    def __init__(self, remote: Any | None) -> None:
        self._remote = remote

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
            return bool(self._remote.cpu(0).exist)
        except Exception:  # noqa: BLE001  (any error means no)
            return False

    def close(self) -> None:
        """Hang up: the device is free for the next session."""
        self._remote = None


def local_session() -> DeviceSession:
    """Return a session with this very process."""
    return DeviceSession(None)


def open_session(address: Mapping[str, Any], *, timeout_sec: float) -> DeviceSession:
    """Open a session with the device that has a key at a tracker; may block for ever.

    Args:
        address: ``tracker_host``, ``tracker_port`` and ``key``, as in `RemoteDevice.to_json`.
        timeout_sec: The device ends the session after this time, whatever it is doing.

    Raises:
        DeviceLostError: If there is no such tracker, or the device does not answer.
    """
    host, port, key = str(address["tracker_host"]), int(address["tracker_port"]), str(address["key"])
    try:
        session = DeviceSession(
            rpc.connect_tracker(host, port).request(key, session_timeout=timeout_sec, max_retry=2)
        )
    except Exception as error:
        raise DeviceLostError(
            f"cannot open a session with device {clean(key)}: {clean(str(error), 300)}"
        ) from error
    if not session.is_alive():
        raise DeviceLostError(f"device {clean(key)} opened a session, but does not answer in it")
    return session
