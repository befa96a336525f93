"""Who reaches the gateway gets nothing without a certificate of the farm or a ticket of a lease, and with one no more than that."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gateway_process import FakeDevice, GatewayProcess, prove, refuses, session_with
from hostile_device import INIT_SERVER, frame
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_mutations import any_json
from rpc_client import PATIENCE_SEC

from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.tickets import TicketSigner
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import Relay
from tunefarm_tuning.process.relay.tracker import hello
from tunefarm_tuning.process.sandbox import Access, sandbox_order
from tunefarm_tuning.process.tunnel import (
    GATEWAY_NAME,
    client_context,
    hang_up,
    receive_message,
    send_message,
)
from tunefarm_workers.device.tunnel.certificate import DeviceKey
from tunefarm_workers.gateway.server import MOST_GREETINGS

DEVICE, OTHER = "dev_1/key", "dev_2/key"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with closing(GatewayProcess(tmp_path_factory.mktemp("farm") / "keys")) as process:
        yield process
        assert process.process.poll() is None


_fences = iter(range(1, 1 << 30))


@pytest.fixture
def device(gateway: GatewayProcess) -> Iterator[FakeDevice]:
    with closing(FakeDevice(gateway, DEVICE)) as there:
        yield there


def serves(device: FakeDevice) -> bool:
    """Whether a worker with a lease still gets a session on the device."""
    with session_with(device, device.gateway.sign(DEVICE, next(_fences))) as (worker, there):
        worker.sendall(b"request")
        assert there.recv(7) == b"request"
        there.sendall(b"answer")
        return worker.recv(6) == b"answer"


def test_without_a_certificate_and_a_ticket_there_is_nothing(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    for message in ({"device": True}, {"session": "x", "server": 1}, {"list": True}, {}, {"ticket": None}):
        answer = gateway.say(message)
        assert answer == {"refused": "no ticket"}, message
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC) as plain:
        plain.sendall(b"\x12\xf2\x02\x00" * 4)  # how one begins with TVM's tracker
        with suppress(OSError):
            assert b"\x12\xf2\x02\x00" not in plain.recv(64)
    assert serves(device)


def test_a_device_that_begins_a_record_and_stays_keeps_nothing(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    """The beginning of a TLS record must not hold the gateway's thread once the worker has left."""
    with session_with(device, gateway.sign(DEVICE, next(_fences))) as (worker, there):
        with socket.socket(fileno=os.dup(there.fileno())) as raw:
            raw.sendall(b"\x17\x03\x03\x40\x00")
        hang_up(worker)
        there.settimeout(PATIENCE_SEC)
        with suppress(ssl.SSLError, ConnectionError):
            assert there.recv(1) == b""
    assert serves(device)


def test_an_older_tls_is_refused(gateway: GatewayProcess) -> None:
    context = client_context(gateway.authority.certificate)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        gateway.dial(context)


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_a_certificate_that_is_not_the_farms_or_has_expired_is_refused(
    gateway: GatewayProcess, device: FakeDevice, tmp_path: Path, kind: str
) -> None:
    if kind == "expired":
        context = gateway.device_context(OTHER, days=-1e-3)
    else:
        context = gateway.device_context(OTHER, authority=ensure_authority(tmp_path / "other"))
    assert gateway.say({"device": True}, context) is None
    assert gateway.ask(gateway.sign(OTHER, next(_fences)), wait_sec=0.2) == {
        "refused": "the device is not connected",
        "away": True,
    }
    assert serves(device)


def test_the_gateways_own_certificate_is_no_devices_and_a_devices_no_gateways(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    context = client_context(gateway.authority.certificate)
    context.load_cert_chain(gateway.folder / "gateway/certificate.pem", gateway.folder / "gateway/key.pem")
    assert gateway.say({"device": True}, context) is None
    assert serves(device)


def test_a_device_cannot_pose_as_the_gateway(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Its certificate is of the same authority, but good for clients alone."""
    key = DeviceKey()
    private = key._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = tmp_path / "device.pem"
    pem.write_bytes(gateway.authority.certify_device(key.request, DEVICE).encode() + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    for checks_name in (True, False):
        ours, theirs = socket.socketpair()
        context = client_context(gateway.authority.certificate)
        context.check_hostname = checks_name
        served = threading.Thread(target=pose, args=(theirs, server))
        served.start()
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(ours, server_hostname=GATEWAY_NAME)
        served.join()


def pose(connection: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        context.wrap_socket(connection, server_side=True)


def test_a_gateway_of_another_farm_gets_no_ticket(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Whoever is in the way between a worker and the gateway learns nothing."""
    with pytest.raises(ssl.SSLCertVerificationError):
        gateway.dial(client_context(ensure_authority(tmp_path / "other").certificate))


def test_a_ticket_is_valid_once_in_its_time_and_for_the_newest_lease(
    gateway: GatewayProcess, device: FakeDevice, tmp_path: Path
) -> None:
    earlier, fence = next(_fences), next(_fences)
    used = gateway.sign(DEVICE, fence)
    with session_with(device, used):
        assert gateway.ask(used) == {"refused": "the ticket was used already"}
    assert gateway.ask(used) == {"refused": "the ticket was used already"}
    expired = gateway.sign(DEVICE, fence, valid_sec=-1.0)
    assert gateway.ask(expired) == {"refused": "the ticket has expired"}
    for_ever = gateway.sign(DEVICE, fence, valid_sec=1e9)
    assert "for too long" in str(gateway.ask(for_ever))
    stale = gateway.sign(DEVICE, earlier)
    assert f"the lease {earlier} is over" in str(gateway.ask(stale))
    ensure_authority(tmp_path / "other")
    foreign = TicketSigner.read(tmp_path / "other/worker/tickets.key").sign(
        DEVICE, 1 << 40, gateway.worker.public
    )
    assert gateway.ask(foreign) == {"refused": "no ticket of this farm"}
    # A huge number of a lease locks nobody out, as it takes a worker's key to say it.
    assert serves(device)


def test_a_device_reaches_no_other_device_and_no_worker(gateway: GatewayProcess, device: FakeDevice) -> None:
    ticket = gateway.sign(DEVICE, next(_fences))
    with closing(FakeDevice(gateway, OTHER)) as other, gateway.dial() as worker:
        # Not even with a worker's ticket.
        assert (
            gateway.say(
                {"ticket": gateway.sign(DEVICE, 1), "timeout_sec": 1.0, "wait_sec": 1.0}, other.context
            )
            is None
        )
        send_message(worker, {"ticket": ticket, "timeout_sec": 60.0, "wait_sec": PATIENCE_SEC})
        prove(worker, ticket, gateway.worker)
        session = device.next_request()["open"]
        # A session is opened by the device that was asked for it, even if another one knows its name.
        with other.open(session) as wrong:
            assert refuses(wrong)
        send_message(other.connection, {"refused": session, "why": "mine"})
        with device.open("0" * 32) as unknown:
            assert refuses(unknown)
        with device.open(session) as there, device.open(session) as again:
            assert receive_message(worker)["open"] is True
            worker.sendall(b"to the device that was leased")
            assert there.recv(64) == b"to the device that was leased"
            assert refuses(again)


def test_a_device_can_break_its_own_conversation_only(gateway: GatewayProcess, device: FakeDevice) -> None:
    for junk in (b"\xff\xff", b"\x00\x02{]", b"\x00\x02[]", b"\x00\x00", b"\x00\x10" + b"x" * 3):
        with closing(FakeDevice(gateway, OTHER)) as other:
            other.connection.sendall(junk)
            if junk == b"\x00\x10xxx":
                continue  # half a message, and then nothing
            while not refuses(other.connection):
                pass
    for message in ({"refused": 7}, {"refused": ["x"]}, {"why": None}, {"open": "x"}):
        send_message(device.connection, message)
    assert serves(device)


def test_what_a_device_sends_passes_the_relay_here_too(gateway: GatewayProcess, device: FakeDevice) -> None:
    address = DeviceAddress(
        tracker_host="127.0.0.1",
        tracker_port=gateway.port,
        key=DEVICE,
        authority=gateway.authority.certificate,
    )
    with (
        closing(Relay(address, sandbox_order(Access(network=True)))) as relay,
        ThreadPoolExecutor(1) as worker,
    ):
        assert relay.key is not None
        ticket = gateway.signer.sign(DEVICE, next(_fences), relay.key)
        opening = worker.submit(
            relay.open, None, timeout_sec=60.0, connect_timeout_sec=PATIENCE_SEC, ticket=ticket
        )
        with device.open(device.next_request()["open"]) as there:
            opened = opening.result()
            assert (opened.host, opened.port) == ("127.0.0.1", 7)
            with socket.create_connection(("127.0.0.1", relay.port), PATIENCE_SEC) as client:
                client.sendall(hello(opened.token))
                assert len(client.recv(8, socket.MSG_WAITALL)) == 8
                relay.check()
                there.sendall(frame(INIT_SERVER))
                assert refuses(client), "nothing of it reaches the client"
            with pytest.raises(DeviceLostError) as caught:
                relay.check()
        assert caught.value.code == BROKE_PROTOCOL
        with pytest.raises(DeviceLostError, match="used already"):
            relay.open(None, timeout_sec=60.0, connect_timeout_sec=PATIENCE_SEC, ticket=ticket)


def test_a_second_life_of_a_device_takes_over_from_the_first(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    with closing(FakeDevice(gateway, DEVICE)) as second:
        while not refuses(device.connection):
            pass
        assert serves(second)


def test_silent_and_slow_connections_end_in_time(gateway: GatewayProcess, device: FakeDevice) -> None:
    """One says nothing, one a byte a second in TLS's greeting, one a byte a second of its first message."""
    with (
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC) as silent,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC) as slow,
        gateway.dial() as greeted,
    ):
        ended = threading.Event()

        def trickle() -> None:
            for byte in [0x16, 3, 1, 2, 0, 1, *[0] * 100]:
                if ended.is_set():
                    return
                for connection, data in ((slow, bytes([byte])), (greeted, b"\x1f")):
                    with suppress(OSError):
                        connection.sendall(data)
                time.sleep(1.0)

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert all(refuses(connection) for connection in (silent, slow, greeted))
            assert serves(device)
        finally:
            ended.set()
            thread.join()


def test_many_silent_connections_make_nobody_wait(gateway: GatewayProcess, device: FakeDevice) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC))
        for _ in range(MOST_GREETINGS + 20):
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC))
        assert refuses(first), "the oldest gives way"
        assert serves(device)


def test_resets_and_a_full_table_of_files_end_nobody_elses_session(
    gateway: GatewayProcess, device: FakeDevice
) -> None:
    with session_with(device, gateway.sign(DEVICE, next(_fences))) as (worker, there):
        with gateway.dial() as greeted:
            for _ in range(50):
                reset = socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC)
                reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                reset.close()
            send_message(greeted, {"ticket": "none"})
            assert receive_message(greeted) == {"refused": "no ticket"}
        files = len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))
        limits = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (files + 3, limits[1]))
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC))
            worker.sendall(b"request")
            assert there.recv(7) == b"request"
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, limits)
    assert serves(device)


def test_the_gateway_has_as_many_open_files_as_it_may(gateway: GatewayProcess) -> None:
    """A thousand devices with a session each need more than the 1,024 that a process begins with."""
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


@pytest.mark.parametrize("of", ["timeout_sec", "wait_sec"])
@pytest.mark.parametrize("value", [None, "soon", -1.0, float("nan"), float("inf"), True, [], 1e300])
def test_a_workers_times_are_checked(gateway: GatewayProcess, of: str, value: object) -> None:
    message = {
        "ticket": gateway.sign(OTHER, next(_fences)),
        "timeout_sec": 0.1,
        "wait_sec": 0.1,
        of: value,
    }
    assert "refused" in (gateway.say(message) or {})


KEYS = (
    *("ticket", "timeout_sec", "wait_sec", "prove", "proof"),
    *("device", "session", "server", "refused", "why", "open", "ping"),
)
FRAMES = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(KEYS), any_json(*KEYS), max_size=4).map(
        lambda message: (data := json.dumps(message).encode()) and len(data).to_bytes(2, "big") + data
    ),
)
ROLES = st.sampled_from(["plain", "stranger", "device", "conversation"])


@pytest.fixture(scope="module")
def fuzzed(gateway: GatewayProcess) -> dict[str, ssl.SSLContext]:
    return {
        "stranger": client_context(gateway.authority.certificate),
        "device": gateway.device_context(OTHER),
        "conversation": gateway.device_context("dev_3/key"),
    }


@pytest.mark.exhaustive
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(role=ROLES, frames=st.lists(FRAMES, min_size=1, max_size=40))
def test_no_frames_harm_the_gateway(
    gateway: GatewayProcess, fuzzed: dict[str, ssl.SSLContext], role: str, frames: list[bytes]
) -> None:
    """600 connections of up to 40 frames, from strangers before and after TLS, and from devices."""
    connected = (
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SEC)
        if role == "plain"
        else gateway.dial(fuzzed[role])
    )
    with connected as connection, suppress(OSError):
        if role == "conversation":
            send_message(connection, {"device": True})
        for frame in frames:
            connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert gateway.process.poll() is None


def test_after_all_this_a_device_is_served(device: FakeDevice) -> None:
    assert serves(device)
