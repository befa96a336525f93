"""What a peer can do with connections before it has sent a request: the real server, raw sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from api_server import api_server
from app_farm import farm_settings, make_farm
from migrated_database import upgrade

from tunefarm_api import connections, server
from tunefarm_api.connections import Connections

HEAD_SEC = 0.6


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(connections, "HEAD_SEC", HEAD_SEC)
    settings = farm_settings(tmp_path, max_connections=6)
    upgrade(settings.database_url.get_secret_value())
    farm = make_farm(settings)
    with closing(farm.services), api_server(farm) as running:
        yield running.url


def dial(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answer_of(connection: socket.socket) -> bytes:
    """Return all that the server says until it closes."""
    received = b""
    while chunk := connection.recv(4096):
        received += chunk
    return received


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: farm\r\nX-A: "]
)
def test_a_peer_that_stops_in_a_head_is_hung_up_on(url: str, sent: bytes) -> None:
    with dial(url) as peer:
        peer.sendall(sent)
        began = time.monotonic()
        assert answer_of(peer).startswith(b"HTTP/1.1 408 ")
        assert HEAD_SEC * 0.5 < time.monotonic() - began < HEAD_SEC + 10


def test_a_head_that_comes_byte_by_byte_has_no_longer(url: str) -> None:
    with dial(url) as peer:
        began = time.monotonic()
        with pytest.raises(OSError, match=r".*"):  # noqa: PT012
            for byte in b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 1000:
                peer.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - began < HEAD_SEC + 10


def test_a_second_request_has_as_long(url: str) -> None:
    with dial(url) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: farm\r\n\r\n")
        assert peer.recv(4096).startswith(b"HTTP/1.1 200 ")
        peer.sendall(b"GET /healthz HTT")
        assert b"408 Request Timeout" in answer_of(peer)


def test_a_connection_that_waits_between_two_requests_lasts(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        assert client.get("/healthz").status_code == 200
        time.sleep(2 * HEAD_SEC)
        assert client.get("/healthz").status_code == 200


def test_an_address_has_so_many_connections(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(dial(url))
        with dial(url) as further:
            answer = answer_of(further)
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"Retry-After: " in answer
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        deadline = time.monotonic() + 30
        while client.get("/healthz").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "head", [b"X-A: " + b"a" * (80 << 10), b"".join(b"X-%d: v\r\n" % n for n in range(20_000))]
)
def test_heads_without_end_are_refused(url: str, head: bytes) -> None:
    with dial(url) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: farm\r\n")
        try:
            peer.sendall(head)
            assert answer_of(peer).startswith(b"HTTP/1.1 400 ")
        except ConnectionError:  # it was refused before all of it was sent
            pass


def test_a_body_of_a_stranger_is_bounded(url: str) -> None:
    with dial(url) as peer:
        peer.sendall(
            b"POST /sign-in HTTP/1.1\r\nHost: farm\r\nSec-Fetch-Site: same-origin\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99999999\r\n\r\n"
        )
        assert peer.recv(64).startswith(b"HTTP/1.1 413 ")


def test_connections_are_counted_by_address_but_not_those_of_proxies() -> None:
    counted = Connections(2, "10.0.0.0/8, 127.0.0.1", open_files=160)
    for address in (
        "192.0.2.1",
        "192.0.2.1",
        "2001:db8::1",
        "2001:db8::2",
        *(["10.1.2.3"] * 40),
        "127.0.0.1",
    ):
        assert counted.admit(address) == ""
    assert counted.admit("192.0.2.1").startswith("429 ")
    assert counted.admit("2001:db8::3").startswith("429 ")
    counted.release("192.0.2.1")
    assert counted.admit("192.0.2.1") == ""


def test_files_stay_free_for_the_database_and_the_store() -> None:
    counted = Connections(0, open_files=160)
    for number in range(150):
        assert counted.admit(f"192.0.2.{number}") == ""
    assert counted.admit("192.0.2.200").startswith("503 ")
    counted.release("192.0.2.1")
    assert counted.admit("192.0.2.200") == ""


def test_the_server_opens_as_many_files_as_it_may() -> None:
    import resource

    assert server.allow_open_files() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
