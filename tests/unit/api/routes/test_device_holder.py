"""A device shows the job that holds it."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model, StepKind


def test_who_holds_a_device(
    client: TestClient, services: Services, device: dict[str, Any], job: dict[str, Any]
) -> None:
    path, pool = f"/v1/devices/{device['id']}", device["device_key"]
    assert client.get(path).json()["job_id"] is None
    with services.uow.write() as repos:
        (step,) = repos.steps.for_job(job["id"])
        assert repos.devices.lease(pool, f"step:{step.id}", 600.0) is not None
    assert client.get(path).json()["job_id"] == job["id"]
    assert [listed["job_id"] for listed in client.get("/v1/devices").json()["items"]] == [job["id"]]
    assert client.post(f"{path}/heartbeat", json={}).json()["job_id"] == job["id"]


def test_who_holds_it_for_no_job(
    client: TestClient, services: Services, device: dict[str, Any], ready_model: Model
) -> None:
    path, pool = f"/v1/devices/{device['id']}", device["device_key"]
    with services.uow.write() as repos:
        step = repos.steps.add(StepKind.IMPORT, subject_id=ready_model.id, model_id=ready_model.id)
        lease = repos.devices.lease(pool, f"step:{step.id}", 600.0)
        assert lease is not None
    assert client.get(path).json()["state"] == "leased"
    assert client.get(path).json()["job_id"] is None
    with services.uow.write() as repos:
        repos.devices.release_lease(lease.device.id, lease.fence)
        assert repos.devices.lease(pool, "calibration:worker", 600.0) is not None
    assert client.get(path).json()["job_id"] is None
