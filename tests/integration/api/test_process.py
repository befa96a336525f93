"""The API as a process: its output, its end, and the remains of a broken upload."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from api_process import WAIT_SEC, running_api
from waiting import wait_until


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_it_starts_serves_and_ends(tmp_path: Path) -> None:
    with running_api(tmp_path / "farm") as api:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", api.url)
        key_file = api.folder / "key"
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert httpx.get(f"{api.url}/healthz", trust_env=False, timeout=60).json()["status"] == "ok"
        assert httpx.get(f"{api.url}/v1/jobs", trust_env=False, timeout=60).status_code == 401
        re_bound = httpx.get(
            f"{api.url}/healthz", headers={"Host": "evil.example"}, trust_env=False, timeout=60
        )
        assert re_bound.status_code == 421
        with api.client() as client:
            ready = client.get("/readyz").json()
            assert ready["ready"] is True
            assert ready["checks"]["broker"] != "ok"
            assert client.get("/v1/jobs").json() == {"items": [], "next_cursor": None}
            answer = client.post("/v1/models", params={"name": "net"}, content=b"\x08\x0a model")
            assert answer.status_code == 202, answer.text
        assert api.stop() == 0
        log = api.log.read_text()
        assert api.key not in log
        assert "broker-password" not in log
        assert all(json.loads(line)["role"] == "api" for line in log.splitlines())
    with running_api(tmp_path / "farm") as again:
        assert again.key == api.key
        with again.client() as client:
            assert client.get(f"/v1/models/{answer.json()['id']}").json() == answer.json()


@pytest.mark.exhaustive
def test_a_key_that_the_farm_does_not_know_is_replaced(tmp_path: Path) -> None:
    with running_api(tmp_path / "farm") as first:
        key_file = first.folder / "key"
    key_file.write_text("tfk_no_key\n")
    with running_api(tmp_path / "farm") as again, again.client() as client:
        assert again.key not in (first.key, "tfk_no_key")
        assert client.get("/v1/jobs").status_code == 200


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize(
    ("trusted", "sent", "noted"),
    [
        ("", "203.0.113.9", "127.0.0.1"),
        ("10.0.0.0/8", "203.0.113.9", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.0/8,10.0.0.1", "203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("127.0.0.1", "10.1.2.3 <b>the admin's</b>", ""),
        ("127.0.0.1", "fe80::1%<b>", "fe80::1"),
    ],
)
def test_only_a_trusted_proxy_says_where_a_request_came_from(
    tmp_path: Path, trusted: str, sent: str, noted: str
) -> None:
    with running_api(tmp_path, TUNEFARM_TRUSTED_PROXIES=trusted) as api, api.client() as client:
        created = client.post(
            "/v1/keys", json={"name": "k", "scopes": ["read"]}, headers={"X-Forwarded-For": sent}
        )
        assert created.status_code == 201, created.text
        (entry,) = client.get("/v1/audit", params={"subject": created.json()["id"]}).json()["items"]
        assert entry["address"] == noted


@pytest.mark.exhaustive
def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        store = api.folder / "store"
        host, _, port = api.url.removeprefix("http://").rpartition(":")
        for framing in ("Content-Length: 50000000", "Transfer-Encoding: chunked"):
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                head = f"POST /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {api.key}\r\n{framing}\r\n\r\n"
                connection.sendall(head.encode())
                body = b"\x08" * (3 << 20)
                chunked = framing.endswith("chunked")
                connection.sendall(f"{len(body):x}\r\n".encode() + body + b"\r\n" if chunked else body)
                wait_until(lambda: bool(files_in(store)), "the upload to begin")
            wait_until(lambda: files_in(store) == [], "the upload to be cleaned up")
        wait_until(lambda: api.log.read_text().count('"aborted": true') == 2, "the log")
        with api.client() as client:
            assert client.get("/v1/models").json()["items"] == []
        assert api.stop() == 0
        assert files_in(store) == []


@pytest.mark.exhaustive
def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with running_api(tmp_path, TUNEFARM_MAX_UPLOAD_BYTES="1000000") as api:
        host, _, port = api.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = f"POST /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {api.key}\r\n"
            connection.sendall(f"{head}Content-Length: 4294967296\r\nExpect: 100-continue\r\n\r\n".encode())
            answer = b""
            while received := connection.recv(65536):  # until the server closes: it waits for no body
                answer += received
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"application/problem+json" in answer
        with api.client() as client:  # without a length: cut off when the limit is passed
            cut = client.post("/v1/models", content=iter([b"\x08" * 600_000] * 20))
            assert (cut.status_code, cut.json()["code"]) == (413, "too-large")
        assert files_in(api.folder / "store") == []


def send_past_the_answer(host: str, port: int, head: bytes, body: bytes) -> bytes:
    """Send the rest of the body after the answer, and return what is received then.

    The server's patience with the rest is seconds; a machine that is busy for longer gets another try.
    """
    for _ in range(10):
        answer = b""
        try:
            with socket.create_connection((host, port), timeout=60) as connection:
                connection.sendall(head + body[: 1 << 20])
                select.select([connection], [], [], 60)  # the answer is out
                connection.sendall(body[1 << 20 :])
                while received := connection.recv(65536):
                    answer += received
            return answer
        except ConnectionError:
            continue
    raise AssertionError("the connection was reset each time")


@pytest.mark.exhaustive
def test_a_client_that_goes_on_sending_still_gets_the_answer(tmp_path: Path) -> None:
    """A connection that is closed over unread bytes is reset, and the answer on its way is lost."""
    with running_api(tmp_path, TUNEFARM_MAX_UPLOAD_BYTES="1000000") as api:
        body = b"\x08" * (8 << 20)
        for path, key, status in (
            ("/v1/models", api.key, 413),
            ("/v1/jobs", api.key, 413),
            ("/v1/models", "tfk_wrong", 401),
        ):
            host, _, port = api.url.removeprefix("http://").rpartition(":")
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            answer = send_past_the_answer(host, int(port), head.encode(), body)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert answer.endswith(b"}")
        # A body that never comes does not hold the connection: the server closes it.
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(head.encode())
            while connection.recv(65536):
                pass


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"TUNEFARM_DATABASE_URL": "mysql://u:secret@h/n"}, "must be sqlite or postgresql"),
        ({"TUNEFARM_DATABASE_URL": "sqlite:////nowhere/at/all.db"}, "database is not available"),
        ({"TUNEFARM_TRACKER": "nonsense"}, "TUNEFARM_TRACKER"),
    ],
)
def test_what_is_set_wrong_is_said_in_a_line(tmp_path: Path, change: dict[str, str], message: str) -> None:
    variables = {
        "TUNEFARM_DATABASE_URL": f"sqlite:///{tmp_path / 'x.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(tmp_path),
        **change,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tunefarm_api", "--port", "0", "--migrate"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=WAIT_SEC,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_a_schema_that_was_not_upgraded(tmp_path: Path) -> None:
    variables = {
        "TUNEFARM_DATABASE_URL": f"sqlite:///{tmp_path / 'x.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tunefarm_api", "--port", "0"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=WAIT_SEC,
    )
    assert done.returncode == 2
    assert "tunefarm db upgrade" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_on_postgresql(tmp_path: Path, new_postgres_url: Callable[[], str]) -> None:
    device = {
        "name": "node-1",
        "device_key": "cpu",
        "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 2},
        "info": {"cores": 2},
        "device_model": "m",
        "rpc_key": "k",
    }
    with running_api(tmp_path, TUNEFARM_DATABASE_URL=new_postgres_url()) as api, api.client() as client:
        assert client.get("/readyz").json()["ready"] is True
        assert client.post("/v1/devices", json=device).status_code == 200
        model = client.post("/v1/models", params={"name": "net"}, content=b"\x08\x0a model").json()
        assert client.get("/v1/models").json()["items"] == [model | {"waiting": None}]
        job = {"model_id": model["id"], "budget": {"trials": 1}}
        refused = client.post("/v1/jobs", json=job)
        assert (refused.status_code, refused.json()["code"]) == (409, "model-importing")
        odd = client.get("/v1/jobs/job_%00")  # PostgreSQL takes no NUL in a text
        assert (odd.status_code, odd.json()["code"]) == (422, "invalid-request")
        assert api.stop() == 0
