"""How many requests are under way at once, and what the one too many is told."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_server import api_server
from app_farm import farm_settings, make_farm
from fastapi import FastAPI
from migrated_database import upgrade
from starlette.testclient import TestClient
from waiting import wait_until

from tunefarm_api.concurrency import RequestsUnderWay
from tunefarm_app.access.api_keys import create_api_key, rotate_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.core.errors import TransientError


def test_a_request_that_ends_makes_room() -> None:
    under_way = RequestsUnderWay(2)
    with under_way.counted(), under_way.counted():
        with pytest.raises(TransientError) as caught, under_way.counted():
            pass
        assert (caught.value.code, caught.value.fields["retry_after_sec"]) == ("overloaded", 2)
    with under_way.counted():
        pass
    with pytest.raises(ZeroDivisionError), under_way.counted():
        raise ZeroDivisionError
    with under_way.counted(), under_way.counted():
        pass


def test_strangers_have_a_count_of_their_own() -> None:
    under_way = RequestsUnderWay(16)
    with ExitStack() as stack:
        for number in range(2):
            stack.enter_context(under_way.counted_stranger(f"192.0.2.{number}"))
        for number in range(16):
            stack.enter_context(under_way.counted_unknown(f"192.0.2.{number}"))
        for refused in (under_way.counted_stranger, under_way.counted_unknown):
            with pytest.raises(TransientError) as caught, refused("192.0.2.99"):
                pass
            assert caught.value.code == "overloaded"
        for _ in range(16):
            stack.enter_context(under_way.counted())


def test_an_address_may_have_a_quarter_of_what_strangers_have() -> None:
    under_way = RequestsUnderWay(64)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(under_way.counted_stranger("192.0.2.1"))
        for _ in range(16):
            stack.enter_context(under_way.counted_unknown("192.0.2.1"))
        for refused, limit in ((under_way.counted_stranger, 2), (under_way.counted_unknown, 16)):
            with pytest.raises(TransientError, match="this address has") as caught, refused("192.0.2.1"):
                pass
            assert (caught.value.code, caught.value.fields["limit"]) == ("too-many-at-once", limit)
            with refused("192.0.2.2"):
                pass
    with under_way.counted_stranger("192.0.2.1"), under_way.counted_stranger("192.0.2.1"):
        pass


def test_a_key_may_have_a_quarter() -> None:
    under_way = RequestsUnderWay(8)
    with ExitStack() as stack:
        for key_id in ("a", "a", "b"):
            stack.enter_context(under_way.counted_for(key_id))
        with pytest.raises(TransientError) as caught, under_way.counted_for("a"):
            pass
        assert (caught.value.code, caught.value.fields["limit"]) == ("too-many-at-once", 2)
    with under_way.counted_for("a"), under_way.counted_for("a"):
        pass


def test_streams_metrics_and_heartbeats_have_a_quarter_each(
    app: FastAPI, client: TestClient, device: dict[str, Any], problem: Any
) -> None:
    """Before, nobody counted them: behind a proxy, a key with the scope read could hold all connections of the API by streams."""
    under_way = app.state.under_way = RequestsUnderWay(4)
    key = str(client.headers["Authorization"]).removeprefix("Bearer ")
    client.post("/sign-in", data={"key": key}, headers={"Sec-Fetch-Site": "same-origin"})
    beat = f"/v1/devices/{device['id']}/heartbeat"
    requests = {
        "streams": lambda: client.get("/live"),
        "metrics": lambda: client.get("/metrics"),
        "heartbeats": lambda: client.post(beat, json={"ready": True}),
    }
    for kind, request in requests.items():
        with under_way.counted_for(key.split("_")[1], kind):
            problem(request(), 429, "too-many-at-once")
            assert client.get("/v1/jobs").status_code == 200
            for other in requests.keys() - {kind, "streams"}:
                assert requests[other]().status_code == 200


def test_any_number() -> None:
    under_way = RequestsUnderWay(0)
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(under_way.counted())
            stack.enter_context(under_way.counted_unknown("a"))
            stack.enter_context(under_way.counted_stranger("a"))
            stack.enter_context(under_way.counted_for("a"))


def test_what_the_client_is_told(
    app: FastAPI, services: Services, client: TestClient, device: dict[str, Any], problem: Any
) -> None:
    under_way = app.state.under_way = RequestsUnderWay(4)
    own_id = str(client.headers["Authorization"]).split("_")[1]
    successor = {"Authorization": f"Bearer {rotate_api_key(services, own_id)[1]}"}
    _, other = create_api_key(services, name="other", scopes=["read"])
    with under_way.counted_for(own_id):
        refused = client.get("/v1/jobs")
        problem(refused, 429, "too-many-at-once")
        assert refused.headers["Retry-After"] == "2"
        problem(client.get("/v1/jobs", headers=successor), 429, "too-many-at-once")
        assert client.post(f"/v1/devices/{device['id']}/heartbeat", json={"ready": True}).status_code == 200
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {other}"}).status_code == 200
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(under_way.counted())
        refused = client.get("/v1/jobs")
        problem(refused, 503, "overloaded")
        assert refused.headers["Retry-After"] == "2"
        assert client.post(f"/v1/devices/{device['id']}/heartbeat", json={"ready": True}).status_code == 200
        assert client.get("/metrics").status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code in (200, 503)
    assert client.get("/v1/jobs").status_code == 200
    assert client.get("/v1/nothing").status_code == 404
    assert client.get("/v1/jobs").status_code == 200


def test_whoever_has_no_key_takes_no_room_from_those_who_have(tmp_path: Path) -> None:
    """Forms for the sign-in whose bytes stop coming, from more connections than the server has room for."""
    settings = farm_settings(tmp_path, max_requests=32)
    upgrade(settings.database_url.get_secret_value())
    farm = make_farm(settings)
    device = farm.add_device()
    headers = {"Authorization": f"Bearer {create_api_key(farm.services, name='test')[1]}"}
    slow = (
        b"POST /sign-in HTTP/1.1\r\nHost: farm\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 100\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nkey=a"
    )
    with (
        ExitStack() as stack,
        api_server(farm) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        for _ in range(40):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60)).sendall(slow)
        wait_until(lambda: client.get("/sign-in").status_code == 429, "strangers to have no room left")
        assert client.get("/v1/jobs").status_code == 200
        assert client.post(f"/v1/devices/{device.id}/heartbeat", json={"ready": True}).status_code == 200
    farm.services.close()
