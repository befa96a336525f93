"""Devices and records over HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from noted_peak import noted_peak
from starlette.testclient import TestClient

from tunefarm.client import Device as ClientDevice
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_app.runtime.composition import Services
from tunefarm_db.ids import new_id
from tunefarm_db.values import NewRecord
from tunefarm_tuning.core.errors import ConflictError

DEVICE: dict[str, Any] = {
    "name": "node-1",
    "device_key": "lab-cpu",
    "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 2},
    "info": {},
    "device_model": "cpu-2c",
    "rpc_key": "k",
}


def test_a_device_registers_and_beats(client: TestClient, device: dict[str, Any], problem: Any) -> None:
    assert (device["state"], device["device_key"], device["lease_owner"]) == ("online", "lab-cpu", None)
    assert "rpc_key" not in device, "it is between agent and farm"
    path = f"/v1/devices/{device['id']}"
    well = client.post(f"{path}/heartbeat", json={"info": {"cores": 3}}).json()
    assert (well["state"], well["info"]) == ("online", {"cores": 3})
    assert client.get(path).json() | {"renew_credential": False} == well
    away = client.post(f"{path}/heartbeat", json={"ready": False, "reason": "the gateway is away"}).json()
    assert (away["state"], away["reason"]) == ("offline", "the gateway is away")
    assert client.post(f"{path}/heartbeat", json={}).json()["state"] == "online"
    (listed,) = client.get("/v1/devices", params={"device_key": "lab-cpu", "state": "online"}).json()["items"]
    assert listed["id"] == device["id"]
    assert client.get("/v1/devices", params={"device_key": "other"}).json()["items"] == []
    assert client.post(f"{path}/heartbeat", json={"rpc_key": "node-1-secret"}).status_code == 200
    problem(client.post(f"{path}/heartbeat", json={"rpc_key": "of-another-life"}), 409, "device-taken")
    for gone in (client.get("/v1/devices/dev_no"), client.post("/v1/devices/dev_no/heartbeat", json={})):
        problem(gone, 404, "device-not-found")


def test_what_a_device_can_do_at_its_best(
    client: TestClient, services: Services, device: dict[str, Any]
) -> None:
    path = f"/v1/devices/{device['id']}"
    assert device["peak"] is None
    with services.uow.read() as repos:
        stored = repos.devices.get(device["id"])
    noted = noted_peak(services, stored, flops_per_sec=100e9, bytes_per_sec=20e9)
    peak = client.get(path).json()["peak"]
    assert peak == noted.to_json()
    (listed,) = client.get("/v1/devices").json()["items"]
    assert listed["peak"] == peak
    assert client.post(f"{path}/heartbeat", json={}).json()["peak"] == peak
    read = ClientDevice.read(listed).peak
    assert read is not None
    assert (read.threads, read.missing) == (2, "")
    assert read.flops_per_sec == {"float32": (100e9, 200e9)}
    assert read.memory_bytes_per_sec == (20e9, 40e9)
    assert ClientDevice.read(device).peak is None


def test_people_order_devices(client: TestClient, device: dict[str, Any], problem: Any) -> None:
    path = f"/v1/devices/{device['id']}"

    def order(word: str, **body: str) -> dict[str, Any]:
        answer = client.post(f"{path}/{word}", json=body)
        assert answer.status_code == 200, answer.text
        ordered: dict[str, Any] = answer.json()
        return ordered

    problem(client.post(f"{path}/release"), 409, "device-state")
    drained = order("drain", reason="a new fan\x1b")
    assert (drained["state"], drained["reason"]) == ("draining", "drained by a person: a new fan\\x1b")
    assert client.post(f"{path}/heartbeat", json={}).json()["state"] == "draining"
    held = order("quarantine")
    assert (held["state"], held["held"]) == ("quarantined", True)
    problem(client.post(f"{path}/drain", json={}), 409, "device-state")
    assert client.post(f"{path}/heartbeat", json={}).json()["state"] == "quarantined"
    released = order("release")
    assert (released["state"], released["held"]) == ("offline", False)
    assert client.post(f"{path}/heartbeat", json={}).json()["state"] == "online"
    assert client.delete(path).status_code == 204
    for gone in (client.get(path), client.delete(path), client.post(f"{path}/drain", json={})):
        problem(gone, 404, "device-not-found")
    assert client.get("/v1/devices").json()["items"] == []
    (removed,) = client.get("/v1/devices", params={"state": "removed"}).json()["items"]
    assert removed["name"] == device["name"]


def enrolled(client: TestClient, token: str, **body: Any) -> Any:
    body_of_request = {"name": "node-7", "device_key": "lab-cpu", **body}
    return client.post(
        "/v1/devices/enrol", json=body_of_request, headers={"Authorization": f"Bearer {token}"}
    )


def test_a_token_enrols_one_device_once(
    client: TestClient, services: Services, device: dict[str, Any], problem: Any
) -> None:
    created = client.post("/v1/devices/tokens", json={"device_key": "lab-cpu"})
    assert created.status_code == 201, created.text
    token = created.json()["token"]
    problem(enrolled(client, token, device_key="other"), 409, "enrolment-other-device")
    problem(enrolled(client, token, name="node-1"), 409, "device-name-taken")
    problem(enrolled(client, token, name="a b"), 422, "invalid-device")
    problem(client.get("/v1/devices", headers={"Authorization": f"Bearer {token}"}), 403, "forbidden")
    answer = enrolled(client, token)
    assert answer.status_code == 201, answer.text
    own = {"Authorization": f"Bearer {answer.json()['api_key']}"}
    assert client.post("/v1/devices", json={}, headers=own).status_code == 422
    problem(enrolled(client, token), 409, "enrolment-used")
    body = {key: value for key, value in DEVICE.items() if key != "name"}
    for changes in ({"name": "node-1"}, {"name": "node-7", "device_key": "other"}):
        told = problem(client.post("/v1/devices", json={**body, **changes}, headers=own), 403, "forbidden")
        assert "`tunefarm device token --device-key" in told["detail"]
    registered = client.post("/v1/devices", json={**body, "name": "node-7"}, headers=own).json()
    mine, other = (f"/v1/devices/{device['id']}/heartbeat" for device in (registered, device))
    assert client.post(mine, json={}, headers=own).status_code == 200
    problem(client.post(other, json={}, headers=own), 404, "device-not-found")
    for method, path in (
        ("GET", "/v1/devices"),
        ("POST", "/v1/devices/tokens"),
        ("POST", "/v1/devices/enrol"),
    ):
        problem(client.request(method, path, json={}, headers=own), 403, "forbidden")

    # Again, by name: the first credential is worthless then. Removed: the second, too.
    again = client.post("/v1/devices/tokens", json={"name": "node-7"}).json()["token"]
    new = {"Authorization": f"Bearer {enrolled(client, again).json()['api_key']}"}
    problem(client.post(mine, json={}, headers=own), 401, "unauthenticated")
    assert client.post(mine, json={}, headers=new).status_code == 200
    assert client.delete(f"/v1/devices/{registered['id']}").status_code == 204
    problem(client.post(mine, json={}, headers=new), 401, "unauthenticated")


@pytest.mark.parametrize("token_name", [None, "node-7"])
def test_a_machine_that_lost_the_answer_enrols_again_within_a_minute(
    client: TestClient, services: Services, problem: Any, token_name: str | None
) -> None:
    key, token = create_enrolment_token(services, device_name=token_name)
    also = ["node-7-gpu1"]
    lost = enrolled(client, token, name="node-7-gpu0", also=also).json()
    for others in ({"name": "node-7-gpu2"}, {"name": "node-7-gpu0"}, {"name": "node-7-gpu1"}):
        problem(enrolled(client, token, **others), 409, "enrolment-used")
    again = enrolled(client, token, name="node-7-gpu0", also=also)
    assert again.status_code == 201, again.text
    for name, answer, status in (("lost", lost, 401), ("again", again.json(), 422)):
        for credential in (answer["api_key"], answer["also"][0]["api_key"]):
            headers = {"Authorization": f"Bearer {credential}"}
            assert client.post("/v1/devices", json={}, headers=headers).status_code == status, name
    problem(enrolled(client, token, name="node-7-gpu0", also=also), 409, "enrolment-used")
    with services.uow.read() as repos:
        used = repos.api_keys.get(key.id)
    assert 0.0 < (used.expires_at or 0.0) - (used.rotated_at or 0.0) <= 60.0


def test_a_token_that_is_too_old(client: TestClient, services: Services, problem: Any) -> None:
    _, token = create_enrolment_token(services, valid_sec=-1.0)
    problem(enrolled(client, token), 401, "unauthenticated")
    problem(client.post("/v1/devices/tokens", json={"valid_sec": 0}), 422, "invalid-request")
    problem(client.post("/v1/devices/tokens", json={"name": "a b"}), 422, "invalid-device")


def test_a_token_enrols_all_devices_of_a_machine(client: TestClient, problem: Any) -> None:
    token = client.post("/v1/devices/tokens", json={}).json()["token"]
    also = ["node-7-gpu1", "node-7-gpu2"]
    for wrong in (["a b"], ["node-7"]):
        problem(enrolled(client, token, also=wrong), 422, "invalid-device")
    problem(enrolled(client, token, also=["x"] * 64), 422, "invalid-request")
    answer = enrolled(client, token, also=also).json()
    assert [answer["name"], *(other["name"] for other in answer["also"])] == ["node-7", *also]
    body = {key: value for key, value in DEVICE.items() if key != "name"}
    for enrolment in (answer, *answer["also"]):
        own = {"Authorization": f"Bearer {enrolment['api_key']}"}
        for name in ("node-7", *also):
            status = client.post("/v1/devices", json={**body, "name": name}, headers=own).status_code
            assert (status == 200) == (name == enrolment["name"])
    problem(enrolled(client, token, name="node-8"), 409, "enrolment-used")

    # Set up anew: a token for the machine is good for its GPUs, and for nothing else.
    for name, code in (
        ("node-7-gpu12", None),
        ("node-7-gpu", "enrolment-other-device"),
        ("node-77-gpu1", "enrolment-other-device"),
        ("node-7-gpu1x", "enrolment-other-device"),
    ):
        renewing = client.post("/v1/devices/tokens", json={"name": "node-7"}).json()["token"]
        again = enrolled(client, renewing, name="node-7-gpu1", also=[name])
        if code is None:
            assert again.status_code == 201, again.text
        else:
            problem(again, 409, code)


def test_a_token_is_used_once_by_many_at_once(client: TestClient, services: Services) -> None:
    key, _ = create_enrolment_token(services)
    start = threading.Barrier(4)

    def enrol(number: int) -> str:
        start.wait(60)
        try:
            enrol_devices(services, key, names=[f"racer-{number}"], device_key="p")
        except ConflictError as error:
            return error.code
        return "enrolled"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(enrol, range(4))) == ["enrolled", *["enrolment-used"] * 3]


def test_a_new_device_is_offline_until_it_is_ready(client: TestClient) -> None:
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
    assert "tracker_host" not in device
    assert device["state"] == "offline"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"name": ""}, 422, "invalid-device"),
        ({"name": "a b"}, 422, "invalid-device"),
        ({"tracker_host": "127.0.0.1", "tracker_port": 9190}, 422, "tracker-removed"),
        ({"tracker_port": 0}, 422, "tracker-removed"),
        ({"tracker_port": "9190"}, 422, "invalid-request"),
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
        "rpc_key": "k",
    }
    problem(client.post("/v1/devices", json={**body, **changes}), status, code)
    assert client.post("/v1/devices", json=body).status_code == 200
    problem(client.post("/v1/devices", json={**body, "device_model": "other"}), 409, "device-pool-mismatch")


def test_a_devices_records_are_purged(
    client: TestClient, services: Services, device: dict[str, Any], problem: Any
) -> None:
    record = NewRecord(
        workload_key="w",
        target_key="llvm",
        device_model="m",
        toolchain="t",
        space_key="s",
        config=[0, []],
        outcome="ok",
        cost_sec=1e-9,
        samples_sec=[1e-9],
        build_sec=0.1,
        measured_at=1.0,
        device_id=device["id"],
    )
    with services.uow.write() as repos:
        repos.records.add_many([record, replace(record, certificate_sha256="0a" * 32, ticket_jti="t1")])
    for origin in ({"certificate_sha256": "0b" * 32}, {"ticket_jti": "t2"}):
        none = client.post("/v1/records/purge", json={"device_id": device["id"], **origin})
        assert none.json()["records"] == 0
    for origin in ({"certificate_sha256": "x"}, {"ticket_jti": ""}, {"ticket_jti": "t\x00"}):
        bad = client.post("/v1/records/purge", json={"device_id": device["id"], **origin})
        problem(bad, 422, "invalid-request")
    shown = client.get("/v1/records").json()["items"]
    assert {(item["certificate_sha256"], item["ticket_jti"]) for item in shown} == {
        (None, None),
        ("0a" * 32, "t1"),
    }
    some = client.post("/v1/records/purge", json={"device_id": device["id"], "ticket_jti": "t1"})
    assert some.json()["records"] == 1
    answer = client.post("/v1/records/purge", json={"device_id": device["id"]})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"records": 1, "measured_by": [], "used_by": []}
    assert client.get("/v1/records").json()["items"] == []
    problem(client.post("/v1/records/purge", json={"device_id": "dev_nope"}), 404, "device-not-found")
    problem(client.post("/v1/records/purge", json={}), 422, "invalid-request")


def test_a_devices_credential_cannot_fill_the_audit_log(
    client: TestClient, services: Services, problem: Any
) -> None:
    """Each registration and each certificate is an entry that nobody can delete for 30 days."""
    token = client.post("/v1/devices/tokens", json={"device_key": "lab-cpu"}).json()["token"]
    headers = {"Authorization": f"Bearer {enrolled(client, token).json()['api_key']}"}
    body = {
        "name": "node-7",
        "device_key": "lab-cpu",
        "target": {"kind": "llvm"},
        "info": {},
        "device_model": "m",
        "rpc_key": "k",
    }
    # Minutes are those of the clock: at the turn of one there are twice as many.
    answers = (client.post("/v1/devices", json=body, headers=headers) for _ in range(61))
    problem(next(answer for answer in answers if answer.status_code != 200), 429, "rate-limited")
    path = f"/v1/devices/{client.get('/v1/devices').json()['items'][0]['id']}"
    asked = {"rpc_key": "k", "certificate_request": "x"}
    certificates = (client.post(f"{path}/certificate", json=asked, headers=headers) for _ in range(31))
    assert 429 in {answer.status_code for answer in certificates}
    assert client.post(f"{path}/heartbeat", json={"rpc_key": "k"}, headers=headers).status_code == 200
    assert client.post("/v1/devices", json=body).status_code == 200, "an administrator's key has many devices"


def test_a_guests_model_is_the_farms_to_give(client: TestClient, problem: Any) -> None:
    problem(client.post("/v1/devices/tokens", json={"guest": True}), 422, "invalid-device")
    token = client.post("/v1/devices/tokens", json={"guest": True, "device_key": "guests"}).json()["token"]
    credential = enrolled(client, token, name="g", device_key="guests").json()["api_key"]
    device = {
        "name": "g",
        "device_key": "guests",
        "target": {"kind": "llvm"},
        "info": {},
        "device_model": "m",
        "rpc_key": "k",
    }
    headers = {"Authorization": f"Bearer {credential}"}
    registered = client.post("/v1/devices", json=device, headers=headers)
    assert registered.json()["device_model"] == "guest:guests:m"
    claimed = {**device, "device_model": "guest:guests:m"}
    problem(client.post("/v1/devices", json=claimed, headers=headers), 422, "invalid-device")


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

    def ids_of(**params: Any) -> list[str]:
        answer = client.get("/v1/records", params=params)
        assert answer.status_code == 200, answer.text
        return [record["id"] for record in answer.json()["items"]]

    assert ids_of() == list(ids[::-1])
    assert ids_of(workload_key="w1", target_key="llvm -mcpu=x", outcome="ok") == [ids[3], ids[1]]
    assert ids_of(toolchain="t2") == []
    page = client.get("/v1/records", params={"limit": 3}).json()
    assert page["items"][0]["config"] == [0, [[4, 2], 1]]
    assert ids_of(cursor=page["next_cursor"]) == [ids[0]]

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
