"""Samples over HTTP: uploaded, listed, deleted, and named in a job."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.values import Model, StepKind

BINARY = {"Content-Type": "application/octet-stream"}
BUDGET = {"trials": 8}


def npz(value: float = 1.0) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.full((4, 1, 3), value, np.float32))
    return buffer.getvalue()


def upload(client: TestClient, model: Any, content: Any = None, **params: Any) -> Any:
    content = npz() if content is None else content
    return client.post(f"/v1/models/{model}/samples", params=params, content=content, headers=BINARY)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def make_ready(services: Services, samples_id: str) -> None:
    with services.uow.write() as repos:
        repos.samples.set_ready(samples_id, sets=4, used=[0, 1, 2, 3])


def test_samples_from_upload_to_job(
    client: TestClient, services: Services, ready_model: Model, device: dict[str, Any], problem: Any
) -> None:
    answer = upload(client, ready_model.id, name="street.npz")
    assert answer.status_code == 202, answer.text
    samples = answer.json()
    path = f"/v1/models/{ready_model.id}/samples/{samples['id']}"
    assert answer.headers["location"] == path
    assert (samples["state"], samples["name"], samples["sets"]) == ("checking", "street.npz", None)
    with services.uow.read() as repos:
        assert repos.steps.find(StepKind.SAMPLES, samples["id"]) is not None
    job = {"model_id": ready_model.id, "budget": BUDGET, "samples": [samples["id"]]}
    problem(client.post("/v1/jobs", json=job), 409, "samples-checking")
    make_ready(services, samples["id"])
    assert client.get(path).json()["used"] == [0, 1, 2, 3]
    assert upload(client, ready_model.id).status_code == 200
    created = client.post("/v1/jobs", json=job)
    assert created.status_code == 201, created.text
    assert created.json()["options"]["samples"] == [samples["id"]]
    (listed,) = client.get(f"/v1/models/{ready_model.id}/samples").json()["items"]
    assert (listed["state"], listed["expires_at"]) == ("ready", None)
    assert problem(client.delete(path), 409, "samples-in-use")["job_ids"] == [created.json()["id"]]
    client.post(f"/v1/jobs/{created.json()['id']}/cancel")
    assert client.delete(path).status_code == 204
    problem(client.get(path), 404, "samples-not-found")
    problem(client.post("/v1/jobs", json=job), 404, "samples-not-found")


def test_no_answer_has_the_samples(client: TestClient, services: Services, ready_model: Model) -> None:
    content = npz(np.float32(0.73501))
    samples = upload(client, ready_model.id, content).json()
    make_ready(services, samples["id"])
    own = f"/v1/models/{ready_model.id}/samples/{samples['id']}"
    for path in (own, f"/v1/models/{ready_model.id}/samples", f"/v1/models/{ready_model.id}"):
        assert content[60:200] not in client.get(path).content
    for end in ("file", "content", "download"):
        assert client.get(f"{own}/{end}").status_code == 404


@pytest.mark.parametrize("announced", [True, False])
def test_samples_over_the_limit(
    client: TestClient, settings: Settings, ready_model: Model, problem: Any, announced: bool
) -> None:
    content = npz() + bytes(settings.max_samples_bytes)
    document = problem(
        upload(client, ready_model.id, content if announced else iter([content])), 413, "too-large"
    )
    assert document["limit_bytes"] == settings.max_samples_bytes
    assert files_in(settings.store_dir) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "empty-samples"), (b"\x80\x04 a pickle", "not-npz"), (b"\x93NUMPY", "not-npz")],
)
def test_what_is_no_npz(
    client: TestClient, settings: Settings, ready_model: Model, problem: Any, content: bytes, code: str
) -> None:
    problem(upload(client, ready_model.id, content), 422, code)
    assert files_in(settings.store_dir) == []
    assert client.get(f"/v1/models/{ready_model.id}/samples").json()["items"] == []


def test_models_that_take_none(
    client: TestClient, services: Services, settings: Settings, problem: Any
) -> None:
    problem(upload(client, "mdl_none"), 404, "model-not-found")
    with services.uow.write() as repos:
        importing = repos.models.add(name="net", sha256="cd" * 32, size_bytes=9)
    problem(upload(client, importing.id), 409, "model-importing")
    with services.uow.write() as repos:
        repos.models.set_failed(importing.id, {"code": "x", "message": "it is broken"})
    problem(upload(client, importing.id), 422, "model-failed")
    with services.uow.write() as repos:
        repos.models.delete(importing.id)
    problem(upload(client, importing.id), 410, "model-deleted")
    problem(client.get(f"/v1/models/{importing.id}/samples"), 410, "model-deleted")
    assert files_in(settings.store_dir) == []


def test_a_form_is_no_file(client: TestClient, ready_model: Model, problem: Any) -> None:
    answer = client.post(f"/v1/models/{ready_model.id}/samples", files={"file": ("s.npz", npz())})
    problem(answer, 415, "unsupported-media-type")


def test_a_key_that_only_reads(
    client: TestClient, services: Services, ready_model: Model, problem: Any
) -> None:
    samples = upload(client, ready_model.id).json()
    reader = create_api_key(services, name="reader", scopes=("read",))[1]
    client.headers["Authorization"] = f"Bearer {reader}"
    assert client.get(f"/v1/models/{ready_model.id}/samples").status_code == 200
    problem(upload(client, ready_model.id, npz(2.0)), 403, "forbidden")
    problem(client.delete(f"/v1/models/{ready_model.id}/samples/{samples['id']}"), 403, "forbidden")
