"""Broken uploads: the API is killed and restarted, two of them share a store, clients go silent."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from api_process import WAIT_SEC, Api, running_api
from api_server import api_server
from app_farm import farm_settings, make_farm
from waiting import wait_until

from tunefarm_app.access.api_keys import create_api_key

CONTENT = b"\x08\x0a\0" + os.urandom(20 << 20)


def begin(client: httpx.Client, content: bytes) -> str:
    answer = client.post("/v1/uploads", headers={"Upload-Length": str(len(content))})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def offset_of(client: httpx.Client, path: str) -> int:
    return int(client.head(path).headers["upload-offset"])


def send(client: httpx.Client, path: str, content: bytes, offset: int) -> httpx.Response:
    headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    return client.patch(path, content=content[offset:], headers=headers)


@contextmanager
def sending(url: str, key: str, path: str, content: bytes, start: int, end: int) -> Iterator[socket.socket]:
    """Announce all the rest, send a part of it, and hold the connection."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    head = (
        f"PATCH {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nUpload-Offset: {start}\r\n"
        f"Content-Type: application/offset+octet-stream\r\nContent-Length: {len(content) - start}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + content[start:end])
        yield connection


def finished(client: httpx.Client, path: str, api: Api) -> None:
    upload = client.get(path).json()
    assert upload["state"] == "finished"
    sha256 = client.get(f"/v1/models/{upload['model_id']}").json()["sha256"]
    assert sha256 == hashlib.sha256(CONTENT).hexdigest()
    files = [file for file in (api.folder / "store").rglob("*") if file.is_file()]
    assert [file.name for file in files] == [sha256]
    assert hashlib.sha256(files[0].read_bytes()).hexdigest() == sha256


@pytest.mark.exhaustive
def test_the_server_is_killed_twice_on_the_way(tmp_path: Path) -> None:
    path, kept = "", 0
    for end in (9 << 20, 18 << 20):
        with running_api(tmp_path) as api, api.client() as client:
            path = path or begin(client, CONTENT)
            start = offset_of(client, path)
            assert start >= kept
            with sending(api.url, api.key, path, CONTENT, start, end):
                kept = wait_until(
                    lambda client=client, path=path, start=start: max(0, offset_of(client, path) - start),
                    "a part to be kept",
                )
                kept += start
                api.process.kill()
                api.process.wait(WAIT_SEC)
    with running_api(tmp_path) as api, api.client() as client:
        start = offset_of(client, path)
        assert kept <= start < len(CONTENT)
        assert send(client, path, CONTENT, start).status_code == 204
        finished(client, path, api)


@pytest.mark.exhaustive
def test_two_servers_on_one_store(tmp_path: Path) -> None:
    with (
        running_api(tmp_path, name="one") as first,
        running_api(tmp_path, name="two") as two,
        two.client() as client,
    ):
        assert first.key == two.key
        path = begin(client, CONTENT)
        with sending(first.url, first.key, path, CONTENT, 0, 10 << 20):
            wait_until(lambda: offset_of(client, path) > 0, "a part to be kept")
            refused = send(client, path, CONTENT, offset_of(client, path))
            assert (refused.status_code, refused.json()["code"]) == (423, "upload-locked")
            first.process.kill()
            first.process.wait(WAIT_SEC)
        # Nothing waits for a lock of the killed server.
        assert send(client, path, CONTENT, offset_of(client, path)).status_code == 204
        finished(client, path, two)


@pytest.mark.exhaustive
def test_a_client_that_goes_away_leaves_what_came(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, api.client() as client:
        path = begin(client, CONTENT)
        with sending(api.url, api.key, path, CONTENT, 0, 3 << 20):
            pass
        # All but the little that the server had not looked at when it learned of it.
        kept = wait_until(lambda: offset_of(client, path), "what came to be kept")
        assert 2 << 20 < kept <= 3 << 20
        assert send(client, path, CONTENT, kept).status_code == 204
        finished(client, path, api)
        assert api.stop() == 0


def test_a_client_that_falls_silent_loses_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefarm_api.transfer.tus.STALLED_SEC", 0.5)
    content = b"\x08\x0a" + bytes(5000)
    farm = make_farm(farm_settings(tmp_path))
    key = create_api_key(farm.services, name="test")[1]
    headers = {"Authorization": f"Bearer {key}"}
    with (
        api_server(farm) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        path = begin(client, content)
        with sending(server.url, key, path, content, 0, 3000) as connection:
            answer = b""
            while received := connection.recv(65536):
                answer += received
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"upload-stalled"' in answer
        assert offset_of(client, path) == 3000
        assert send(client, path, content, 3000).status_code == 204
    farm.services.close()
