"""A ticket is of use to the relay alone that a worker signed it for: whoever steals it gets no session, and takes none away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from gateway_process import FakeDevice, GatewayProcess, prove, refuses, session_with
from rpc_client import PATIENCE_SEC

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import Relay
from tunefarm_tuning.process.relay.key import RelayKey
from tunefarm_tuning.process.sandbox import Access, sandbox_order
from tunefarm_tuning.process.tunnel import receive_message, send_message
from tunefarm_workers.gateway.server import GREETING_SEC

DEVICE = "dev_1/key"
STOLEN = {"refused": "the ticket belongs to another worker"}

_fences = iter(range(1, 1 << 30))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with closing(GatewayProcess(tmp_path_factory.mktemp("farm") / "keys")) as process:
        yield process
        assert process.process.poll() is None


@pytest.fixture
def device(gateway: GatewayProcess) -> Iterator[FakeDevice]:
    with closing(FakeDevice(gateway, DEVICE)) as there:
        yield there


def relay_of_a_worker(gateway: GatewayProcess) -> Relay:
    address = DeviceAddress(
        tracker_host="127.0.0.1",
        tracker_port=gateway.port,
        key=DEVICE,
        authority=gateway.authority.certificate,
    )
    return Relay(address, sandbox_order(Access(network=True)))


def open_with(relay: Relay, ticket: str) -> str:
    return relay.open(None, timeout_sec=60.0, connect_timeout_sec=PATIENCE_SEC, ticket=ticket).token


def test_another_workers_relay_gets_no_session_by_a_stolen_ticket(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    """Nor does it use the ticket up: the worker that it was signed for gets its session afterwards."""
    with (
        closing(relay_of_a_worker(gateway)) as owner,
        closing(relay_of_a_worker(gateway)) as thief,
        ThreadPoolExecutor(1) as executor,
    ):
        assert owner.key is not None
        assert owner.key != thief.key
        ticket = gateway.signer.sign(DEVICE, next(_fences), owner.key)
        with pytest.raises(DeviceLostError, match="the ticket belongs to another worker"):
            open_with(thief, ticket)
        opening = executor.submit(open_with, owner, ticket)
        with device.open(device.next_request()["open"]):
            assert opening.result()
        with pytest.raises(DeviceLostError, match="used already"):
            open_with(owner, ticket)
        with pytest.raises(DeviceLostError, match="the ticket belongs to another worker"):
            open_with(thief, ticket)


def test_a_device_that_steals_a_ticket_gets_no_session(gateway: GatewayProcess, device: FakeDevice) -> None:
    """Neither with its own certificate, nor as somebody without one."""
    ticket = gateway.sign(DEVICE, next(_fences))
    asked = {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC}
    assert gateway.say(asked, gateway.device_context("dev_2/key")) is None
    assert gateway.say(asked, worker=RelayKey()) == STOLEN
    with session_with(device, ticket):
        pass


def said(proof: object) -> Callable[[GatewayProcess, str, str], object]:
    return lambda _gateway, _ticket, _challenge: proof


PROOFS: dict[str, Callable[[GatewayProcess, str, str], object]] = {
    "none": said(None),
    "nothing": said(""),
    "a number": said(7),
    "a list": said([1]),
    "no base64": said("é%"),
    "too long": said("A" * 4000),
    "zeros": said("A" * 86),
    "the ticket's own signature": lambda _gateway, ticket, _challenge: ticket.rpartition(".")[2],
    "of another challenge": lambda gateway, ticket, _challenge: gateway.worker.prove(ticket, "0" * 64),
    "of another ticket": lambda gateway, _ticket, challenge: gateway.worker.prove(
        gateway.sign(DEVICE, 1), challenge
    ),
    "by another key": lambda _gateway, ticket, challenge: RelayKey().prove(ticket, challenge),
}


@pytest.mark.parametrize("proof", PROOFS)
def test_nothing_else_is_a_proof(gateway: GatewayProcess, device: FakeDevice, proof: str) -> None:
    ticket = gateway.sign(DEVICE, next(_fences))
    with gateway.dial() as thief:
        send_message(thief, {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC})
        challenge = receive_message(thief)["prove"]
        send_message(thief, {"proof": PROOFS[proof](gateway, ticket, challenge)})
        assert receive_message(thief) == STOLEN
    with session_with(device, ticket):
        pass


def test_a_proof_that_was_heard_is_of_no_use_again(gateway: GatewayProcess, device: FakeDevice) -> None:
    """Each connection has a challenge of its own."""
    ticket = gateway.sign(DEVICE, next(_fences))
    asked = {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC}
    with gateway.dial() as owner, gateway.dial() as thief:
        send_message(owner, asked)
        heard = gateway.worker.prove(ticket, receive_message(owner)["prove"])
        send_message(thief, asked)
        assert receive_message(thief)["prove"]
        send_message(thief, {"proof": heard})
        assert receive_message(thief) == STOLEN
    with session_with(device, ticket):
        pass


def test_who_has_a_ticket_and_proves_nothing_is_ended_in_time(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    """One says nothing, one a byte a second; the ticket stays its owner's."""
    ticket = gateway.sign(DEVICE, next(_fences))
    asked = {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC}
    with gateway.dial() as silent, gateway.dial() as slow:
        for connection in (silent, slow):
            send_message(connection, asked)
            assert receive_message(connection)["prove"]
        slow.sendall(b"\x00\xff")
        for _ in range(int(GREETING_SEC) + 5):
            time.sleep(1.0)
            try:
                slow.sendall(b"x")
            except OSError:
                break
        else:
            pytest.fail("a proof of a byte a second keeps a connection")
        assert refuses(silent)
    with gateway.dial() as owner:
        send_message(owner, asked)
        prove(owner, ticket, gateway.worker)
        with device.open(device.next_request()["open"]):
            assert receive_message(owner)["open"] is True
