"""Files in one request: clients that fall silent, and those whose key has little room left."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from api_server import api_server
from app_farm import Farm, farm_settings, make_farm
from migrated_database import upgrade
from waiting import wait_until

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.access.quotas import KeyLimits

MAX_UPLOAD_BYTES = 20_000


@pytest.fixture
def farm(tmp_path: Path, database_url: str) -> Iterator[Farm]:
    settings = farm_settings(tmp_path, database_url=database_url, max_upload_bytes=MAX_UPLOAD_BYTES)
    upgrade(database_url)
    farm = make_farm(settings)
    yield farm
    farm.services.close()


@contextmanager
def client_of(farm: Farm, max_bytes: int | None) -> Iterator[httpx.Client]:
    """Serve the farm; yield a client whose key may store so much."""
    _, text = create_api_key(farm.services, name="key", scopes=["write"], limits=KeyLimits(bytes=max_bytes))
    headers = {"Authorization": f"Bearer {text}"}
    with (
        api_server(farm) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client
        assert not server.faults


def chunked(size_bytes: int) -> Iterator[bytes]:
    yield b"\x08\x0a\0"
    yield os.urandom(size_bytes - 3)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("size_bytes", "max_bytes", "status", "code"),
    [
        (5000, 1000, 403, "quota-bytes"),
        (MAX_UPLOAD_BYTES + 1, 50_000, 413, "too-large"),
        (MAX_UPLOAD_BYTES + 1, None, 413, "too-large"),
    ],
)
def test_a_file_without_a_length_that_is_too_large(
    farm: Farm, size_bytes: int, max_bytes: int | None, status: int, code: str
) -> None:
    with client_of(farm, max_bytes) as client:
        answer = client.post("/v1/models", content=chunked(size_bytes))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if code == "quota-bytes":
        assert (answer.json()["limit"], answer.json()["used"]) == (1000, 0)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/records"])
def test_a_client_that_falls_silent(farm: Farm, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("tunefarm_api.transfer.upload.STALLED_SEC", 0.3)
    with client_of(farm, 1000) as client:
        host, port = str(client.base_url.host), client.base_url.port
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {client.headers['Authorization']}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: 900\r\n\r\n"
        )
        with socket.create_connection((host, port), timeout=60) as connection:
            connection.sendall(head.encode() + b"\x08\x0a")
            answer = b""
            while received := connection.recv(65536):
                answer += received
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"upload-stalled"' in answer
    with farm.services.uow.read() as repos:
        (key,) = repos.api_keys.list()
        assert repos.usage.size_bytes(key.id) == 0, "what was reserved is free again"


def test_what_is_reserved_stays_reserved_while_bytes_come(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm_app.access.quotas.RENEW_SEC", 0.0)

    def used() -> int:
        with farm.services.uow.read() as repos:
            return repos.usage.size_bytes(repos.api_keys.list()[0].id)

    def slow() -> Iterator[bytes]:
        yield b"\x08\x0a"
        wait_until(lambda: used() == 1000, "all that is left to be reserved")
        with farm.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE reserved_bytes SET expires_at = 1.0")
        assert used() == 0
        for _ in range(100):
            yield b"a"
            if used() == 1000:
                return
            time.sleep(0.1)
        raise AssertionError("the reservation was not renewed")

    with client_of(farm, 1000) as client:
        assert client.post("/v1/models", content=slow()).status_code == 202
