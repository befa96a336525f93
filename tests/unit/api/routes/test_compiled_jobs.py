"""Jobs that compile what is on record: without a search, or while one goes on."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tunefarm_db.values import Model


@pytest.fixture
def body(ready_model: Model, device: dict[str, Any]) -> dict[str, Any]:
    return {"model_id": ready_model.id, "options": {"search": False}}


def test_a_job_without_a_search_takes_no_budget(
    client: TestClient, body: dict[str, Any], problem: Any
) -> None:
    assert client.post("/v1/jobs/check", json={"options": body["options"]}).status_code == 200
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job["options"]["search"] is False
    assert set(job["budget"].values()) == {None}
    url = f"/v1/jobs/{job['id']}"
    document = problem(client.patch(url, json={"budget": {"trials": 5}}), 409, "search-ended")
    assert document["stop_reason"] == "no-search"
    assert client.patch(url, json={"priority": "high"}).json()["priority"] == 10
    searching = {"model_id": body["model_id"], "budget": {"trials": 5}}
    assert "search" not in client.post("/v1/jobs", json=searching).json()["options"]


def test_what_a_job_has_so_far(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    job = client.post(
        "/v1/jobs", json={"model_id": body["model_id"], "budget": {"trials": 5}, "priority": 3}
    ).json()
    answer = client.post(f"/v1/jobs/{job['id']}/compile")
    assert answer.status_code == 201
    so_far = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{so_far['id']}"
    assert (so_far["options"]["of"], so_far["options"]["search"], so_far["priority"]) == (job["id"], False, 4)
    assert (so_far["target"], so_far["device_key"]) == (job["target"], job["device_key"])
    again = client.post(f"/v1/jobs/{job['id']}/compile")
    assert (again.status_code, again.json()["id"]) == (200, so_far["id"])
    assert client.post(f"/v1/jobs/{so_far['id']}/compile").json()["id"] == so_far["id"]
    problem(client.post("/v1/jobs/job_nope/compile"), 404, "job-not-found")
    for job_id in (so_far["id"], job["id"]):
        client.post(f"/v1/jobs/{job_id}/cancel")
    assert client.post(f"/v1/jobs/{job['id']}/compile").json()["id"] != so_far["id"]
    client.post(f"/v1/jobs/{client.get('/v1/jobs').json()['items'][0]['id']}/cancel")
    assert client.delete(f"/v1/models/{body['model_id']}").is_success
    problem(client.post(f"/v1/jobs/{job['id']}/compile"), 410, "model-deleted")


def test_finish(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    job = client.post("/v1/jobs", json={"model_id": body["model_id"], "budget": {"trials": 5}}).json()
    finished = client.post(f"/v1/jobs/{job['id']}/finish").json()
    assert (finished["state"], finished["stop_reason"]) == ("queued", "finished")
    assert client.post(f"/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/v1/jobs/{job['id']}/finish").json()["state"] == "cancelled"
    problem(client.post("/v1/jobs/job_nope/finish"), 404, "job-not-found")


def test_the_budget_of_a_whole_job(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/v1/jobs", json={"model_id": body["model_id"], "budget": {"job_sec": 60}})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["budget"]["job_sec"], job["budget"]["wall_sec"], job["eta_sec"]) == (60, None, 60)
    changed = client.patch(f"/v1/jobs/{job['id']}", json={"budget": {"job_sec": 90}}).json()
    assert changed["budget"]["job_sec"] == 90


def test_a_jobs_key_is_that_of_its_records_whatever_the_libraries(
    client: TestClient, body: dict[str, Any], device: dict[str, Any]
) -> None:
    terms = {"options": body["options"], "target": "llvm -libs=dnnl"}
    checked = client.post("/v1/jobs/check", json=terms).json()
    job = client.post("/v1/jobs", json={**body, **terms}).json()
    assert (checked["target_key"], job["target_key"]) == ("llvm", "llvm")
    assert checked["target"]["libs"] == job["target"]["libs"] == ["dnnl"]
