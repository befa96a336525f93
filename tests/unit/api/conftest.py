"""The API in this process, on a real database and store. The broker is away, which must not matter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import farm_settings
from fastapi import FastAPI
from migrated_database import upgrade

from tunefarm_api.app import create_app
from tunefarm_api.errors.problem_kinds import PROBLEM_KINDS
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2 than httpx; either serves here
    from starlette.testclient import TestClient

ONNX_BYTES = b"\x08\x0a" + bytes(range(200))
"""What begins like an ONNX file; nothing here reads on."""

MAX_UPLOAD_BYTES = 100_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = farm_settings(tmp_path, max_upload_bytes=MAX_UPLOAD_BYTES, max_samples_bytes=MAX_UPLOAD_BYTES)
    upgrade(settings.database_url.get_secret_value())
    return settings


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(settings, reconcile=False)


@pytest.fixture
def stranger(app: FastAPI) -> Iterator[TestClient]:
    """A client without a key."""
    with TestClient(app, raise_server_exceptions=False, client=("192.0.2.7", 50000)) as client:
        yield client


@pytest.fixture
def services(app: FastAPI, stranger: TestClient) -> Services:
    services: Services = app.state.services
    return services


@pytest.fixture
def client(stranger: TestClient, services: Services) -> TestClient:
    """The same client, with a key that may do everything."""
    stranger.headers["Authorization"] = f"Bearer {create_api_key(services, name='test')[1]}"
    return stranger


@pytest.fixture
def ready_model(services: Services) -> Model:
    with services.uow.write() as repos:
        model = repos.models.add(name="net", sha256="ab" * 32, size_bytes=9)
        return repos.models.set_ready(
            model.id,
            inputs=[{"name": "x", "shape": [1, 3], "dtype": "float32"}],
            outputs=[],
            operators=[("Conv", 2)],
            opset=17,
            num_params=1000,
        )


@pytest.fixture
def device(client: TestClient) -> dict[str, Any]:
    answer = client.post("/v1/devices", json=DEVICE)
    assert answer.status_code == 200, answer.text
    device: dict[str, Any] = answer.json()
    return device


@pytest.fixture
def job(client: TestClient, ready_model: Model, device: dict[str, Any]) -> dict[str, Any]:
    """A queued job."""
    answer = client.post("/v1/jobs", json={"model_id": ready_model.id, "budget": {"trials": 64}})
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = answer.json()
    return job


ARTIFACT_BYTES = bytes(range(256)) * 1000


@pytest.fixture
def finished_job(job: dict[str, Any], services: Services) -> dict[str, Any]:
    """The job, with an artifact."""
    blob = services.blobs.put([ARTIFACT_BYTES])
    with services.uow.write() as repos:
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type="application/zip")
        artifact = repos.artifacts.add(
            job_id=job["id"],
            sha256=blob.sha256,
            size_bytes=blob.size_bytes,
            name="nét.tunefarm",
            manifest={},
            report={"checks": [1]},
        )
        for state in (JobState.EXTRACTING, JobState.COMPILING, JobState.SUCCEEDED):
            repos.jobs.move(job["id"], state, artifact_id=artifact.id)
    return {**job, "artifact_id": artifact.id, "artifact_sha256": blob.sha256, "artifact": ARTIFACT_BYTES}


DEVICE = {
    "name": "node-1",
    "device_key": "lab-cpu",
    "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 2},
    "info": {"cores": 2},
    "device_model": "cpu-2c",
    "rpc_key": "node-1-secret",
}


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """Check that the answer is this problem; return the document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["code"] == code
    assert PROBLEM_KINDS[code].status == status
    assert document["type"] == f"urn:tunefarm:problem:{code}"
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["detail"]
    return document


@pytest.fixture(name="problem")
def problem_fixture() -> Any:
    return problem
