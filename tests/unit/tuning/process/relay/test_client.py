"""A relay's process: who may use it, and when it ends."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from hostile_device import (
    CALL_FUNC,
    COPY_ACK,
    COPY_FROM,
    INIT_SERVER,
    RETURN,
    HostileDevice,
    Victim,
    frame,
    number,
    sequence,
    tensor,
    text,
)
from waiting import wait_until

from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import Relay
from tunefarm_tuning.process.relay.tracker import RPC_MAGIC, hello
from tunefarm_tuning.process.sandbox import Access, sandbox_order

ORDER = sandbox_order(Access(network=True))


def nothing(_victim: Victim) -> None:
    """Send no answer."""


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A relay to a device that answers nothing."""
    with (
        closing(HostileDevice(nothing)) as device,
        closing(Relay(device.device().address, ORDER)) as started,
    ):
        yield started


def greeting_of(relay: Relay, key: str) -> bytes:
    with socket.create_connection(("127.0.0.1", relay.port), timeout=30.0) as connection:
        connection.sendall(hello(key))
        try:
            return connection.recv(8)
        except ConnectionResetError:
            return b""


def test_a_session_is_its_callers_alone(relay: Relay) -> None:
    """Any process of the machine can connect to the relay."""
    opened = relay.open(None, timeout_sec=60.0, connect_timeout_sec=30.0)
    assert greeting_of(relay, "dev-h") == b""
    assert greeting_of(relay, opened.token[:-1]) == b""
    assert greeting_of(relay, f"{opened.token} -timeout=60") == struct.pack("<ii", RPC_MAGIC, 0)


def test_bytes_that_are_no_greeting_end_nothing(relay: Relay) -> None:
    opened = relay.open(None, timeout_sec=60.0, connect_timeout_sec=30.0)
    for junk in (b"", b"\xff" * 64, struct.pack("<iI", RPC_MAGIC, 1 << 31)):
        connected = socket.create_connection(("127.0.0.1", relay.port), timeout=30.0)
        with connected as connection, suppress(OSError):  # the relay may have closed it already
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert greeting_of(relay, opened.token) == struct.pack("<ii", RPC_MAGIC, 0)


@pytest.mark.parametrize("spare", [4, 30])
def test_silent_strangers_do_not_make_it_deaf(relay: Relay, spare: int) -> None:
    """Its process has no files left for so many connections, or only just."""
    opened = relay.open(None, timeout_sec=60.0, connect_timeout_sec=30.0)
    # Numbers of files, not a count: its sandbox keeps some of /proc open.
    limit = max(int(file.name) for file in Path(f"/proc/{relay._process.pid}/fd").iterdir()) + 1 + spare
    resource.prlimit(relay._process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    with ExitStack() as silent:
        for _ in range(60):
            silent.enter_context(socket.create_connection(("127.0.0.1", relay.port), timeout=30.0))
        assert greeting_of(relay, opened.token) == struct.pack("<ii", RPC_MAGIC, 0)


def test_a_tracker_that_is_away_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
    address = DeviceAddress(tracker_host="127.0.0.1", tracker_port=port, key="dev-1")
    with closing(Relay(address, ORDER)) as relay, pytest.raises(DeviceLostError, match="refused"):
        relay.open(None, timeout_sec=60.0, connect_timeout_sec=5.0)


REFUSED: dict[str, tuple[bytes, bytes]] = {
    "a request": (frame(INIT_SERVER), frame(INIT_SERVER)),
    "a copy that is longer than was asked for": (
        frame(COPY_FROM, tensor((64,)) + struct.pack("<Q", 64)),
        struct.pack("<Qi", 1 << 35, COPY_ACK),
    ),
    "a text whose end no number can hold": (
        frame(CALL_FUNC),
        frame(RETURN, sequence(text(b"", says=(1 << 64) - 1), number(1))),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_answer_ends_the_session_and_is_told(relay: Relay, name: str) -> None:
    request, answer = REFUSED[name]

    def attack(victim: Victim) -> None:
        victim.send(answer)

    with (
        closing(HostileDevice(attack)) as device,
        closing(Relay(device.device().address, ORDER)) as watchful,
    ):
        opened = watchful.open(None, timeout_sec=60.0, connect_timeout_sec=30.0)
        with socket.create_connection(("127.0.0.1", watchful.port), timeout=30.0) as connection:
            connection.sendall(hello(opened.token))
            client = Victim(connection)
            client.receive(8)
            client.send(frame(INIT_SERVER))
            client.frame()
            client.send(request)
            assert connection.recv(1) == b"", "nothing of it reaches the client"
        with pytest.raises(DeviceLostError) as caught:
            watchful.check()
    assert caught.value.code == BROKE_PROTOCOL
    relay.check()


def test_a_relay_ends_with_its_owner() -> None:
    address = DeviceAddress(tracker_host="127.0.0.1", tracker_port=9, key="dev-1")
    relay = Relay(address, ORDER)
    relay.check()
    relay.close()

    def ended() -> bool:
        try:
            socket.create_connection(("127.0.0.1", relay.port), timeout=5.0).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(ended, "the end of the relay")


def test_a_relay_keeps_one_file_at_most(relay: Relay, tmp_path: Path) -> None:
    """A child could leave more in it than it may have open, or than any sum of its files knows."""

    def kept() -> int:
        links = Path(f"/proc/{relay._process.pid}/fd").iterdir()
        return sum(link.readlink() == tmp_path / "file" for link in links)

    (tmp_path / "file").write_bytes(b"x" * 100)
    with (tmp_path / "file").open("rb") as file:
        for _ in range(20):
            relay.send_after("token", file.fileno(), 100)
        assert kept() == 1
        for _ in range(20):
            socket.send_fds(relay._control, [b'{"ask": "violation"}\n'], [file.fileno()])
            relay._answer()
        assert kept() == 1
