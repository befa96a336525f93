"""Sessions with a device: this process itself, or another machine over TVM RPC.

The client side of RPC can block for ever, for example on a device that was switched off. So sessions are opened only in child
processes, whose parents watch the clock.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import rpc

from tunefarm_tuning.artifact.threads import SET_THREADS
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_functions import RECEIVE_FILE
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import Relay, RelayedSession, relay_to
from tunefarm_tuning.process.sandbox import Access, sandbox_order

_uploads = itertools.count()
_LEAST_SENT_BYTES = 1 << 16
_NO_RETURN = "RPCCode::kReturn"
"""In TVM's text of the error where something else than an answer came first: the end of the session."""


class DeviceSession:
    """A device on which kernels can be loaded and run. `open_session` and `local_session` make one.

    Ownership: objects of a remote session (modules, tensors, functions) keep its connection open, and the device busy.
    Release them before `close`.

    Attributes:
        host: Address of the device, from its tracker or the gateway; empty for this process.
        port: The port there, or a number of its server that the gateway tells; 0 for this process.
        receipt: The gateway's receipt of the session; None unless it came through one.
    """

    def __init__(
        self, remote: Any | None, opened: RelayedSession | None = None, relay: Relay | None = None
    ) -> None:
        self._remote = remote
        self._relay = relay
        self._offered: dict[str, Any | None] = {}
        self.host, self.port = ("", 0) if opened is None else (opened.host, opened.port)
        self.receipt = None if opened is None else opened.receipt

    @property
    def is_local(self) -> bool:
        """Whether the device is this process."""
        return self._remote is None

    def device(self, kind: str) -> Any:
        """Return TVM's device of a kind, ``"cpu"`` or ``"cuda"``."""
        return tvm.device(kind, 0) if self._remote is None else self._remote.device(kind, 0)

    def to_device(self, arrays: Sequence[NDArray[Any]], kind: str) -> list[Any]:
        """Copy arrays to the device; return them as its tensors when they are there."""
        device = self.device(kind)
        tensors = [tvm.runtime.tensor(array, device) for array in arrays]
        device.sync()
        return tensors

    def load(self, path: Path | str) -> Any:
        """Load a shared library of this machine on the device; return its module."""
        if self._remote is None:
            return tvm.runtime.load_module(str(path))
        return self._remote.load_module(self.upload(path))

    def load_network(self, path: Path | str, threads: int) -> Any:
        """Load a network's library on the device, whose kernels run on so many threads; return its module."""
        module = self.load(path)
        with contextlib.suppress(AttributeError):  # another machine than a CPU of 64 bits: TVM's own threads
            module.get_function(SET_THREADS, query_imports=True)(threads)
        return module

    def upload(self, path: Path | str) -> str:
        """Send a file of this machine to a remote session; return its name in the session's working folder."""
        if self._remote is None:
            raise InvariantError("there is no other side to upload to")
        name, size = f"{next(_uploads)}-{Path(path).name}", Path(path).stat().st_size
        receive_file = None if size < _LEAST_SENT_BYTES else self.offered(RECEIVE_FILE)
        if self._relay is None or receive_file is None:
            self._remote.upload(str(path), name)
            return name
        token = secrets.token_hex(16)
        with Path(path).open("rb") as file:
            self._relay.send_after(token, file.fileno(), size)
        receive_file(name, size, token)
        return name

    def offered(self, name: str) -> Any | None:
        """Return a function of the device, which is asked for it once; None if it has none of that name: its agent is older."""
        if name not in self._offered:
            try:
                self._offered[name] = self.function(name)
            except AttributeError:
                self._offered[name] = None
        return self._offered[name]

    def function(self, name: str) -> Any:
        """Return a function that is registered on the device under a name."""
        return tvm.get_global_func(name) if self._remote is None else self._remote.get_function(name)

    def is_alive(self) -> bool:
        """Return whether the other side still answers; a crash of a kernel ends the session.

        Raises:
            DeviceLostError: As of `check`.
        """
        if self._remote is None:
            return True
        self.check()
        try:
            self._remote.get_function("tvm.rpc.server.workpath")("")
        except Exception:  # noqa: BLE001  (any error means no)
            self.check()
            return False
        return True

    def check(self) -> None:
        """Check that the other side has only answered so far.

        Raises:
            DeviceLostError: ``device-broke-protocol``.
        """
        if self._relay is not None:
            self._relay.check()

    def check_after(self, error: Exception) -> None:
        """Check that the session outlived a failure.

        Args:
            error: What a call in it raised.

        Raises:
            DeviceLostError: As of `check`; with the field ``session_ended`` if the other side does not answer any more.
        """
        if not self.is_alive():
            why = clean(str(error), 300)
            raise DeviceLostError(f"the device's session ended: {why}", session_ended=True) from error

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Blame another machine for what fails in this block, in which no kernel runs, and close the session then.

        Raises:
            DeviceLostError: As of `check`; if the device did not do what every device does.
        """
        try:
            yield
        except Exception as error:
            try:
                self.check()
            finally:
                is_local = self.is_local
                self.close()
            if is_local or isinstance(error, (MemoryError, TunefarmError)):
                raise
            raise DeviceLostError(f"the device's session cannot be used: {clean(str(error), 300)}") from error

    def close(self) -> None:
        """Close the connection; the device is free for the next session."""
        self._offered.clear()
        self._remote = None


def local_session() -> DeviceSession:
    """Return a session with this process."""
    return DeviceSession(None)


def open_session(
    address: Mapping[str, Any], *, timeout_sec: float, connect_timeout_sec: float = 15.0
) -> DeviceSession:
    """Open a session with a device behind a tracker or a gateway.

    Args:
        address: ``tracker_host``, ``tracker_port``, ``key`` and ``fence``, as in `RemoteDevice.opening`; for a gateway also ``authority``
            and ``ticket``.
        timeout_sec: After this time the device ends the session in any case.
        connect_timeout_sec: Time limit for the device to be free. The device itself can still block for ever.

    Raises:
        DeviceLostError: If tracker or gateway cannot be reached, or the device is not free or does not answer; ``device-broke-protocol``
            if it sent something else than answers.
    """
    device = DeviceAddress.from_json(address)
    key = clean(device.key)
    relay = relay_to(device, sandbox_order(Access(network=True)))
    opened = relay.open(
        address.get("fence"),
        timeout_sec=timeout_sec,
        connect_timeout_sec=connect_timeout_sec,
        ticket=address.get("ticket"),
    )
    try:
        remote = rpc.connect("127.0.0.1", relay.port, opened.token)
    except Exception as error:
        relay.check()
        raise DeviceLostError(
            f"cannot open a session with device {key}: {why_not_opened(error)}", session_ended=True
        ) from error
    session = DeviceSession(remote, opened, relay)
    if not session.is_alive():
        raise DeviceLostError(f"device {key} opened a session, but does not answer in it", session_ended=True)
    return session


def why_not_opened(error: Exception) -> str:
    """Return TVM's reason in plain words; it says that a check of its own failed where the session ended first."""
    text = str(error)
    return "it ended the session before it answered" if _NO_RETURN in text else clean(text, 300)
