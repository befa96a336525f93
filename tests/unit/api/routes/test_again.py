"""A job runs again, over HTTP."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient


def test_a_job_runs_again(
    client: TestClient, job: dict[str, Any], finished_job: dict[str, Any], problem: Any
) -> None:
    path = f"/v1/jobs/{finished_job['id']}/again"
    started = client.post(path, params={"only_if_changed": True})
    assert started.status_code == 201, "its artifact does not say what made it"
    assert started.headers["location"] == f"/v1/jobs/{started.json()['id']}"
    assert started.json()["options"]["again"] == job["id"]
    under_way = client.post(path)
    assert (under_way.status_code, under_way.json()["id"]) == (200, started.json()["id"])
    problem(client.post(f"/v1/jobs/{started.json()['id']}/again"), 409, "not-finished")
    problem(client.post("/v1/jobs/job_none/again"), 404, "job-not-found")
