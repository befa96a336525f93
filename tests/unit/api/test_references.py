"""Parts of ids and names in place of ids, over HTTP."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model

URL = "https://8.8.8.8/hooks/token"


def test_parts_of_ids_in_paths(
    client: TestClient, finished_job: dict[str, Any], device: dict[str, Any]
) -> None:
    webhook = client.post("/v1/webhooks", json={"url": URL, "job_id": finished_job["id"][-6:]}).json()
    assert webhook["job_id"] == finished_job["id"]
    for kind, row in (("jobs", finished_job), ("devices", device), ("webhooks", webhook)):
        for text in (row["id"][-6:], f"…{row['id'][-6:]}", row["id"][:-1], row["id"][4:]):
            answer = client.get(f"/v1/{kind}/{text}")
            assert (answer.status_code, answer.json()["id"]) == (200, row["id"]), text
    assert client.get(f"/v1/devices/{device['name']}").json()["id"] == device["id"]
    part = finished_job["id"][-6:]
    assert client.get(f"/v1/jobs/{part}/events").status_code == 200
    assert client.get("/v1/jobs/net").json()["id"] == finished_job["id"]
    assert client.get("/v1/jobs/compare", params={"job": [part, part]}).json()["code"] == "bad-comparison"


def test_parts_of_ids_in_bodies_and_queries(
    client: TestClient, ready_model: Model, device: dict[str, Any]
) -> None:
    part = ready_model.id[-6:]
    job = client.post("/v1/jobs", json={"model_id": part, "budget": {"trials": 64}}).json()
    assert job["model_id"] == ready_model.id
    assert [row["id"] for row in client.get("/v1/jobs", params={"model_id": part}).json()["items"]] == [
        job["id"]
    ]
    sweep = client.post("/v1/sweeps", json={"model_ids": [part], "budget": {"trials": 64}}).json()
    assert client.get(f"/v1/sweeps/{sweep['id'][-6:]}").json()["id"] == sweep["id"]
    listed = client.get("/v1/jobs", params={"sweep_id": sweep["id"][-6:]}).json()["items"]
    assert [row["id"] for row in listed] == [cell["job_id"] for cell in sweep["cells"]]
    log = client.get("/v1/audit", params={"subject": job["id"][-6:]}).json()["items"]
    assert {entry["subject"] for entry in log} == {job["id"]}
    webhook = client.post("/v1/webhooks", json={"url": URL}).json()["id"]
    assert client.delete(f"/v1/webhooks/{webhook[-6:]}").status_code == 204
    log = client.get("/v1/audit", params={"subject": f"…{webhook[-6:]}"}).json()["items"]
    assert {entry["subject"] for entry in log} == {webhook}, "also of what is gone"
    assert client.get("/v1/audit", params={"subject": "potato"}).json()["items"] == []
    purged = client.post("/v1/records/purge", json={"device_id": device["id"][-6:]})
    assert (purged.status_code, purged.json()["records"]) == (200, 0)


def test_keys_by_parts_of_their_ids(client: TestClient, services: Services, problem: Any) -> None:
    key, _text = create_api_key(services, name="ci", scopes=["read"])
    limited = client.patch(f"/v1/keys/{key.id[:6]}", json={"limits": {"open_jobs": 2}})
    assert limited.json()["id"] == key.id
    assert client.post(f"/v1/keys/{key.id[-6:]}/revoke").json()["id"] == key.id
    problem(client.post("/v1/keys/zzzz/revoke"), 404, "key-not-found")


def test_one_of_several_is_not_guessed(client: TestClient, job: dict[str, Any], problem: Any) -> None:
    other = client.post("/v1/jobs", json={"model_id": job["model_id"], "budget": {"trials": 8}}).json()
    document = problem(client.post(f"/v1/jobs/{job['id'][:9]}/cancel"), 422, "ambiguous")
    assert set(document["ids"]) == {job["id"], other["id"]}
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "queued"
    problem(client.get(f"/v1/jobs/{job['id'][-3:]}"), 404, "job-not-found")
