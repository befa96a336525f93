"""The child's side of the relay: it starts one, and opens sessions through it."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import DeviceLostError, InvariantError, broke_protocol
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.device_address import DeviceAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedSession:
    """A session that waits for TVM's client.

    Attributes:
        token: The key that TVM's client shall ask for, at the relay's `port`.
        host: The device's own address, from its tracker or the gateway.
        port: The device's own port; behind a gateway, a number that its server keeps as long as it runs.
        receipt: The gateway's receipt of the session; None of a tracker, which gives none.
    """

    token: str
    host: str
    port: int
    receipt: str | None = None


class Relay:
    """A relay to one device. Concurrency: one caller.

    Ownership: a process of this one's group, which ends with this object or this process.

    Args:
        address: The device.
        order: The relay's sandbox (`sandbox_order`).
    """

    def __init__(self, address: DeviceAddress, order: str) -> None:
        self.address = address
        self._control, theirs = socket.socketpair()
        with theirs, socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
            passed = (theirs.fileno(), listener.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tunefarm_tuning.process.relay", *map(str, passed), order],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._lines = self._control.makefile("rw")
        self._send(address.to_json())

    @functools.cached_property
    def key(self) -> str | None:
        """The public key that a ticket must be for (see `key`); None for a tracker, which takes none.

        Raises:
            DeviceLostError: If the relay ended.
        """
        answer: str | None = self._ask({"ask": "key"})["key"]
        return answer

    def open(
        self,
        fence: int | None,
        *,
        timeout_sec: float,
        connect_timeout_sec: float,
        ticket: str | None = None,
    ) -> RelayedSession:
        """Wait for the device and greet it.

        Args:
            fence: The number of the lease.
            timeout_sec: After this time the device ends the session in any case.
            connect_timeout_sec: Time limit for the device to be free. The device itself can still block for ever.
            ticket: What the gateway asks for, in place of the fence; signed for this relay's `key`.

        Raises:
            DeviceLostError: If that fails, with the field ``away`` if the gateway says that the device is not there; as
                `broke_protocol`.
        """
        asked = {"ask": "open", "fence": fence, "timeout_sec": timeout_sec, "ticket": ticket}
        reply = self._ask({**asked, "connect_timeout_sec": connect_timeout_sec})
        key = clean(self.address.key)
        if reply.get("violation"):
            raise broke_protocol(key, reply["error"])
        if reply.get("timeout"):
            where = "its tracker" if self.address.authority is None else "the gateway"
            raise DeviceLostError(f"device {key} was not free at {where} within {connect_timeout_sec:g} s")
        if "error" in reply:
            why = f"cannot open a session with device {key}: {reply['error']}"
            raise DeviceLostError(why, away=True) if reply.get("away") else DeviceLostError(why)
        return RelayedSession(**reply)

    def send_after(self, token: str, descriptor: int, size: int) -> None:
        """Have a file sent after the next request that calls a function with this token.

        Args:
            token: Nothing that other requests have in them.
            descriptor: The file, open and at its beginning.
            size: Its bytes.

        Raises:
            DeviceLostError: If the relay ended.
        """
        request = json.dumps({"ask": "send", "token": token, "size": size}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # reading tells
            socket.send_fds(self._control, [request], [descriptor])
        self._answer()

    def check(self) -> None:
        """Check that the device has only answered so far.

        Raises:
            DeviceLostError: As `broke_protocol`.
        """
        if violation := str(self._ask({"ask": "violation"})["violation"]):
            raise broke_protocol(clean(self.address.key), violation)

    def close(self) -> None:
        """End the relay and its sessions."""
        self._lines.close()
        self._control.close()
        self._process.wait()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._send(request)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise DeviceLostError(f"the relay to device {clean(self.address.key)} ended")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # reading tells
            self._lines.write(json.dumps(message) + "\n")
            self._lines.flush()


_relay: Relay | None = None


def start_relay(address: DeviceAddress, order: str) -> Relay:
    """Start this process's relay."""
    global _relay
    if _relay is not None:
        raise InvariantError("this process has a relay already")
    _relay = Relay(address, order)
    return _relay


def relay_to(address: DeviceAddress, order: str) -> Relay:
    """Return this process's relay to the device; one is started if there is none, which a child in its sandbox may not."""
    if _relay is None or _relay.address != address:
        if _relay is not None:
            raise InvariantError(f"this process's relay leads to {clean(_relay.address.key)}")
        return start_relay(address, order)
    return _relay
