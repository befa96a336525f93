"""A gateway with keys of its own, and both who dial it: workers with tickets, devices with certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from device_processes import Child
from rpc_client import PATIENCE_SEC
from waiting import wait_until

from tunefarm_app.identity.authority import Authority, ensure_authority
from tunefarm_app.identity.tickets import VALID_SEC, TicketSigner
from tunefarm_tuning.process.relay.key import RelayKey
from tunefarm_tuning.process.tunnel import client_context, dial, receive_message, send_message
from tunefarm_workers.device.tunnel.certificate import DeviceKey


class GatewayProcess(Child):
    """A gateway, at a port that another one can have after it.

    Attributes:
        folder: Of the farm's keys, which are made if they are missing.
        worker: The key of the relay that sessions are asked for with.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.authority: Authority = ensure_authority(folder)
        self.signer = TicketSigner.read(folder / "worker" / "tickets.key")
        self.worker = RelayKey()
        arguments = ["-m", "tunefarm_workers.gateway", "--dir", str(folder)]
        super().__init__([*arguments, *([] if port is None else ["--port", str(port)])])
        self.port: int = wait_until(lambda: self.events, "the gateway's port")[0]["port"]

    def device_context(
        self, identity: str, *, authority: Authority | None = None, days: float = 1.0
    ) -> ssl.SSLContext:
        """Return the TLS settings of a device of that identity, whose certificate another authority may have signed."""
        key = DeviceKey()
        certificate = (authority or self.authority).certify_device(key.request, identity, days=days)
        return key.context(certificate, self.authority.certificate)

    def sign(self, device: str, fence: int, *, valid_sec: float = VALID_SEC) -> str:
        """Return a ticket for `worker`."""
        return self.signer.sign(device, fence, self.worker.public, valid_sec=valid_sec)

    def dial(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        """Connect as a device with that certificate, or as somebody without one."""
        return dial(
            "127.0.0.1",
            self.port,
            context or client_context(self.authority.certificate),
            timeout_sec=PATIENCE_SEC,
        )

    def say(
        self,
        message: dict[str, Any],
        context: ssl.SSLContext | None = None,
        *,
        worker: RelayKey | None = None,
    ) -> dict[str, Any] | None:
        """Connect, say something and return the answer, after the proof if one is asked for; None if the connection ends."""
        try:
            with self.dial(context) as connection:
                send_message(connection, message)
                answer = receive_message(connection)
                if "prove" not in answer:
                    return answer
                proof = (worker or self.worker).prove(message["ticket"], answer["prove"])
                send_message(connection, {"proof": proof})
                return receive_message(connection)
        except OSError:
            return None

    def ask(
        self, ticket: str, *, wait_sec: float = PATIENCE_SEC, worker: RelayKey | None = None
    ) -> dict[str, Any] | None:
        """Ask for a session, and end it at once."""
        return self.say({"ticket": ticket, "timeout_sec": 60.0, "wait_sec": wait_sec}, worker=worker)


def prove(connection: ssl.SSLSocket, ticket: str, worker: RelayKey) -> None:
    """Answer the gateway, which asks for a proof that a ticket is this worker's."""
    challenge = receive_message(connection)["prove"]
    send_message(connection, {"proof": worker.prove(ticket, challenge)})


class FakeDevice:
    """A device that opens every session, and returns what it is sent."""

    def __init__(self, gateway: GatewayProcess, identity: str) -> None:
        self.gateway = gateway
        self.context = gateway.device_context(identity)
        self.connection = gateway.dial(self.context)
        send_message(self.connection, {"device": True})

    def next_request(self) -> dict[str, Any]:
        """Return the next session that it is asked for."""
        while "open" not in (message := receive_message(self.connection)):
            send_message(self.connection, {"ping": True})
        return message

    def open(self, session: str, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        """Return the connection of a session."""
        connection = self.gateway.dial(context or self.context)
        send_message(connection, {"session": session, "server": 7})
        return connection

    def close(self) -> None:
        self.connection.close()


@contextmanager
def session_with(device: FakeDevice, ticket: str) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Open a session by a worker's ticket; yield both ends."""
    with device.gateway.dial() as worker:
        send_message(worker, {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC})
        prove(worker, ticket, device.gateway.worker)
        with device.open(device.next_request()["open"]) as there:
            assert receive_message(worker)["open"] is True
            yield worker, there


def refuses(connection: socket.socket) -> bool:
    """Whether the other side ends the connection without a word."""
    try:
        return connection.recv(1) == b""
    except OSError:
        return True
