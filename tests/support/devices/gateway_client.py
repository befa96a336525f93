"""A worker that holds a lease on a device behind a gateway: sessions in a child process, each by a ticket of its own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from gateway_process import GatewayProcess

from tunefarm_tuning.measure.device_functions import RECEIVE_FILE
from tunefarm_tuning.process import ChildProcess
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import relay_to
from tunefarm_tuning.process.sandbox import Access, sandbox_order
from tunefarm_tuning.tvm.device.session import DeviceSession, open_session

PATIENCE_SEC = 60.0

_session: DeviceSession | None = None


class LeaseHolder:
    """Opens sessions under a lease. Its process is a child that can be frozen, and ends with `close`."""

    def __init__(self, gateway: GatewayProcess, device: str, fence: int, kernels: Path) -> None:
        self.gateway = gateway
        self.device = device
        self.fence = fence
        self._kernels = kernels
        support = Path(__file__).parents[1]
        folders = [str(support / "devices"), str(support / "farm"), str(support)]
        path = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
        self.child = ChildProcess("gateway_client", access=None, env={"PYTHONPATH": path})

    def open(self, *, timeout_sec: float = 60.0, connect_timeout_sec: float = PATIENCE_SEC) -> int:
        """Open a session; return the number of the device's server."""
        self.child.start()
        address = {
            "tracker_host": "127.0.0.1",
            "tracker_port": self.gateway.port,
            "key": self.device,
            "authority": self.gateway.authority.certificate,
            "fence": self.fence,
        }
        key = str(self.child.call("key", {"address": address}, timeout_sec=PATIENCE_SEC))
        address["ticket"] = self.gateway.signer.sign(self.device, self.fence, key)
        params = {"address": address, "timeout_sec": timeout_sec, "connect_timeout_sec": connect_timeout_sec}
        return int(self.child.call("open", params, timeout_sec=2 * PATIENCE_SEC))

    def run(self, kernel: str) -> None:
        """Call a kernel in the open session."""
        self.start(kernel)
        self.child.finish_call(timeout_sec=2 * PATIENCE_SEC)

    def start(self, kernel: str) -> None:
        """Begin to call a kernel; `child.finish_call` waits for its end."""
        self.child.start_call("run", {"library": str(self._kernels), "kernel": kernel})

    def send(self, file: Path, name: str | None = None) -> str:
        """Send a file to the open session; return the SHA-256 of what arrived.

        With a name, it is sent under that name, however that begins.
        """
        params = {"file": str(file), "name": name}
        return str(self.child.call("send", params, timeout_sec=2 * PATIENCE_SEC))

    def is_alive(self) -> bool:
        """Whether the open session still answers."""
        return bool(self.child.call("is_alive", {}, timeout_sec=2 * PATIENCE_SEC))

    def leave(self) -> None:
        """Close the session."""
        self.child.call("leave", {}, timeout_sec=2 * PATIENCE_SEC)

    def assert_serves(self) -> None:
        """A good kernel runs in a session of its own."""
        self.open()
        self.run("good")
        self.leave()

    def close(self) -> None:
        self.child.close()


def _key(params: dict[str, Any]) -> str | None:
    return relay_to(DeviceAddress.from_json(params["address"]), sandbox_order(Access(network=True))).key


def _open(params: dict[str, Any]) -> int:
    global _session
    _session = open_session(
        params["address"],
        timeout_sec=params["timeout_sec"],
        connect_timeout_sec=params["connect_timeout_sec"],
    )
    return _session.port


def _run(params: dict[str, Any]) -> None:
    assert _session is not None
    _session.load(params["library"])[params["kernel"]]()


def _send(params: dict[str, Any]) -> str:
    assert _session is not None
    file, name = Path(params["file"]), params["name"]
    if name is None:
        name = _session.upload(file)
    else:
        relay, receive = _session._relay, _session.offered(RECEIVE_FILE)
        assert relay is not None
        assert receive is not None
        with file.open("rb") as opened:
            relay.send_after("a-token", opened.fileno(), file.stat().st_size)
        receive(name, file.stat().st_size, "a-token")
    return hashlib.sha256(bytes(_session.function("tvm.rpc.server.download")(name))).hexdigest()


def _is_alive(_params: dict[str, Any]) -> bool:
    return _session is not None and _session.is_alive()


def _leave(_params: dict[str, Any]) -> None:
    global _session
    if _session is not None:
        _session.close()
        _session = None


HANDLERS = {
    "key": _key,
    "open": _open,
    "run": _run,
    "send": _send,
    "is_alive": _is_alive,
    "leave": _leave,
}
