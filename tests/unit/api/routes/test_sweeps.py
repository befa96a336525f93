"""Sweeps over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_app.models.samples import submit_samples
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def sweep(client: TestClient, ready_model: Model) -> dict[str, Any]:
    answer = client.post(
        "/v1/sweeps",
        json={
            "model_ids": [ready_model.name],
            "precisions": ["as-model", "float16-weights"],
            "budget": {"job_sec": 100.0},
            "refused": [{"name": "b.tflite", "code": "no-file", "message": "it is <not> there"}],
            "tags": ["Nightly"],
        },
    )
    assert answer.status_code == 201, answer.text
    sweep: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/sweeps/{sweep['id']}"
    return sweep


def test_a_sweep_from_start_to_report(client: TestClient, sweep: dict[str, Any]) -> None:
    path = f"/v1/sweeps/{sweep['id']}"
    assert (sweep["state"], sweep["counts"], sweep["tags"]) == (
        "running",
        {"queued": 2, "refused": 1},
        ["nightly"],
    )
    assert sweep["model_names"] == [sweep["cells"][0]["model_name"], "b.tflite"]
    assert [cell["budget"].get("job_sec") for cell in sweep["cells"]] == [50.0, 50.0, None]
    job = client.get(f"/v1/jobs/{sweep['cells'][1]['job_id']}").json()
    assert (job["options"]["sweep"], job["options"]["precision"]) == (sweep["id"], "float16-weights")
    assert client.get(path).json() == sweep == client.get(f"{path}/report").json()
    of_sweep = client.get("/v1/jobs", params={"sweep_id": sweep["id"]}).json()["items"]
    assert {job["id"] for job in of_sweep} == {cell["job_id"] for cell in sweep["cells"][:2]}
    assert client.get("/v1/jobs", params={"sweep_id": "swp_other"}).json()["items"] == []
    (listed,) = client.get("/v1/sweeps").json()["items"]
    assert listed == {name: value for name, value in sweep.items() if name not in ("cells", "rule")}
    page = client.get(f"{path}/report.html")
    assert "it is &lt;not&gt; there" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    cancelled = client.post(f"{path}/cancel").json()
    assert (cancelled["state"], cancelled["counts"]) == ("cancelled", {"cancelled": 2, "refused": 1})


def test_samples_by_the_names_of_their_model(
    client: TestClient, services: Services, ready_model: Model
) -> None:
    samples = []
    for name in ("day", "night"):
        blob = services.blobs.put([b"PK\x03\x04samples of the ", name.encode()])
        samples.append(submit_samples(services, ready_model.id, name=f"{name}.npz", blob=blob).samples.id)
        with services.uow.write() as repos:
            repos.samples.set_ready(samples[-1], sets=3, used=[0])
    body = {
        "model_ids": [ready_model.name],
        "budget": {"trials": 8},
        "samples": {ready_model.name: samples[:1], ready_model.id: samples[1:], f"{ready_model.name}@1": []},
    }
    answer = client.post("/v1/sweeps", json=body)
    assert answer.status_code == 201, answer.text
    (cell,) = answer.json()["cells"]
    assert client.get(f"/v1/jobs/{cell['job_id']}").json()["options"]["samples"] == samples


def test_equal_keys_make_one_sweep(client: TestClient, ready_model: Model, problem: Any) -> None:
    body = {"model_ids": [ready_model.id], "budget": {"trials": 8}}
    first = client.post("/v1/sweeps", json=body, headers={"Idempotency-Key": "a"})
    again = client.post("/v1/sweeps", json=body, headers={"Idempotency-Key": "a"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    other = client.post(
        "/v1/sweeps", json={**body, "budget": {"trials": 9}}, headers={"Idempotency-Key": "a"}
    )
    problem(other, 409, "idempotency-key-reused")


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"model_ids": ["mdl_none"]}, 404, "model-not-found"),
        ({"model_ids": []}, 422, "empty-sweep"),
        ({"budget": None}, 422, "invalid-budget"),
        ({"device_key": "lab-cpu"}, 422, "invalid-request"),
        ({"options": {"precision": "as-model"}}, 422, "invalid-request"),
        ({"device_keys": ["nowhere"]}, 422, "unknown-device-key"),
        ({"precisions": ["int3"]}, 422, "unknown-precision"),
        ({"precisions": ["int8"]}, 422, "empty-sweep"),
        ({"samples": {"net": ["smp_none"]}}, 404, "samples-not-found"),
        ({"samples": {"mdl_other": ["smp_none"]}}, 422, "invalid-request"),
        ({"precisions": ["as-model"] * 65}, 422, "invalid-request"),
        ({"budget": {"trials": 1}, "precisions": ["as-model", "float16-weights"]}, 422, "invalid-budget"),
    ],
)
def test_refusals(
    client: TestClient, ready_model: Model, problem: Any, change: dict[str, Any], status: int, code: str
) -> None:
    body = {"model_ids": [ready_model.id], "budget": {"trials": 8}, **change}
    problem(client.post("/v1/sweeps", json=body), status, code)
    assert client.get("/v1/sweeps").json()["items"] == []


def test_there_is_no_such_sweep(client: TestClient, problem: Any) -> None:
    for path in ("/v1/sweeps/swp_x", "/v1/sweeps/swp_x/report", "/v1/sweeps/swp_x/report.html"):
        problem(client.get(path), 404, "sweep-not-found")
    problem(client.post("/v1/sweeps/swp_x/cancel"), 404, "sweep-not-found")
    problem(client.get("/v1/sweeps", params={"cursor": "job_x"}), 422, "invalid-cursor")
