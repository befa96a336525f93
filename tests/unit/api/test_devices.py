"""Devices and records over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_app.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.ids import new_id
from tunefarm_db.values import NewRecord


def test_a_device_registers_and_beats(client: TestClient, device: dict[str, Any], problem: Any) -> None:
    assert (device["state"], device["device_key"], device["lease_owner"]) == ("online", "lab-cpu", None)
    assert "rpc_key" not in device, "whoever knows it can ask the tracker for the device"
    path = f"/v1/devices/{device['id']}"
    well = client.post(f"{path}/heartbeat", json={"info": {"cores": 3}}).json()
    assert (well["state"], well["info"]) == ("online", {"cores": 3})
    assert client.get(path).json() == well
    away = client.post(f"{path}/heartbeat", json={"ready": False, "reason": "its tracker is away"}).json()
    assert (away["state"], away["reason"]) == ("offline", "its tracker is away")
    assert client.post(f"{path}/heartbeat", json={}).json()["state"] == "online"
    (listed,) = client.get("/v1/devices", params={"device_key": "lab-cpu", "state": "online"}).json()["items"]
    assert listed["id"] == device["id"]
    assert client.get("/v1/devices", params={"device_key": "other"}).json()["items"] == []
    for gone in (client.get("/v1/devices/dev_no"), client.post("/v1/devices/dev_no/heartbeat", json={})):
        problem(gone, 404, "device-not-found")


def test_a_device_may_leave_the_tracker_to_the_farm(client: TestClient, settings: Settings) -> None:
    body = {
        "name": "node-9",
        "device_key": "cpu",
        "target": {"kind": "llvm"},
        "info": {},
        "device_model": "m",
        "rpc_key": "k",
        "ready": False,
    }
    device = client.post("/v1/devices", json=body).json()
    assert f"{device['tracker_host']}:{device['tracker_port']}" == settings.tracker
    assert device["state"] == "offline"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"name": ""}, 422, "invalid-device"),
        ({"name": "a b"}, 422, "invalid-device"),
        ({"tracker_port": 0}, 422, "invalid-device"),
        ({"tracker_port": "9190"}, 422, "invalid-request"),
        ({"tracker_host": "a/b"}, 422, "invalid-device"),
        ({"target": {"kind": "abacus"}}, 422, "unsupported-target"),
        ({"password": "x"}, 422, "invalid-request"),
    ],
)
def test_bad_devices(
    client: TestClient, device: dict[str, Any], problem: Any, changes: dict[str, Any], status: int, code: str
) -> None:
    body = {
        "name": "node-2",
        "device_key": "lab-cpu",
        "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 2},
        "info": {},
        "device_model": "cpu-2c",
        "tracker_host": "127.0.0.1",
        "tracker_port": 9190,
        "rpc_key": "k",
    }
    problem(client.post("/v1/devices", json={**body, **changes}), status, code)
    assert client.post("/v1/devices", json=body).status_code == 200
    problem(client.post("/v1/devices", json={**body, "device_model": "other"}), 409, "device-pool-mismatch")


def test_records(client: TestClient, services: Services, problem: Any) -> None:
    records = [
        NewRecord(
            workload_key=f"w{n % 2}",
            target_key="llvm -mcpu=x",
            device_model="m",
            toolchain="t",
            space_key="s",
            config=[0, [[4, 2], 1]],
            outcome="ok",
            cost_sec=1e-3,
            samples_sec=[1e-3],
            build_sec=0.1,
            measured_at=1.0,
        )
        for n in range(4)
    ]
    with services.uow.write() as repos:
        ids = repos.records.add_many(records)

    def found(**params: Any) -> list[str]:
        answer = client.get("/v1/records", params=params)
        assert answer.status_code == 200, answer.text
        return [record["id"] for record in answer.json()["items"]]

    assert found() == list(ids[::-1])
    assert found(workload_key="w1", target_key="llvm -mcpu=x", outcome="ok") == [ids[3], ids[1]]
    assert found(toolchain="t2") == []
    page = client.get("/v1/records", params={"limit": 3}).json()
    assert page["items"][0]["config"] == [0, [[4, 2], 1]]
    assert found(cursor=page["next_cursor"]) == [ids[0]]

    first = client.get("/v1/records/best", params={"limit": 1}).json()
    second = client.get("/v1/records/best", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [record["workload_key"] for part in (first, second) for record in part["items"]] == ["w0", "w1"]
    assert second["next_cursor"] is None
    (only,) = client.get(
        "/v1/records/best", params={"workload_key": "w1", "target_key": "llvm -mcpu=x"}
    ).json()["items"]
    assert only["workload_key"] == "w1"
    assert client.get("/v1/records/best", params={"device_model": "other"}).json()["items"] == []
    for cursor in ("nonsense", new_id("rec")):
        problem(client.get("/v1/records/best", params={"cursor": cursor}), 422, "invalid-cursor")
