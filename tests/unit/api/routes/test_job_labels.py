"""Tags, notes and measurements of jobs over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_db.values import Model


@pytest.fixture
def body(ready_model: Model, device: dict[str, Any]) -> dict[str, Any]:
    return {"model_id": ready_model.id, "budget": {"trials": 64}}


def test_tags_and_a_note(
    client: TestClient, finished_job: dict[str, Any], body: dict[str, Any], problem: Any
) -> None:
    path = f"/v1/jobs/{finished_job['id']}"
    assert (finished_job["tags"], finished_job["note"]) == ([], "")
    changed = client.patch(path, json={"tags": [" OCR ", "customer-7", "ocr"], "note": " two\r\nlines\x1b "})
    assert (changed.json()["tags"], changed.json()["note"]) == (["ocr", "customer-7"], "two\nlines\\x1b")
    assert client.patch(path, json={"note": ""}).json()["tags"] == ["ocr", "customer-7"]
    other = client.post("/v1/jobs", json={**body, "tags": ["ocr", "größe"], "note": "n"}).json()
    assert (other["tags"], other["note"]) == (["ocr", "größe"], "n")

    def listed(**query: Any) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=query).json()["items"]]

    assert listed(tag="OCR") == [other["id"], finished_job["id"]]
    assert listed(tag=["ocr", "customer-7"]) == [finished_job["id"]]
    assert listed(text="größe") == [other["id"]]
    assert listed(order="oldest", limit=1) == [finished_job["id"]]
    for name, stored in (
        ("gro\u0308ße", "größe"),
        ("हिन्दी", "हिन्दी"),
        ("q\u0323-q\u0323", "q\u0323-q\u0323"),
    ):
        assert client.patch(f"/v1/jobs/{other['id']}", json={"tags": [name]}).json()["tags"] == [stored]
        for query in ({"tag": name}, {"tag": stored.capitalize()}, {"text": name}, {"text": stored}):
            assert listed(**query) == [other["id"]], query
    for tags in (
        ["two words"],
        ["a,b"],
        ['"'],
        [""],
        ["x" * 41],
        ["-a"],
        ["<b>"],
        ["\u0323a"],
        ["q\u0323" * 21],
    ):
        problem(client.patch(path, json={"tags": tags}), 422, "invalid-tag")
    problem(client.get("/v1/jobs", params={"tag": "two words"}), 422, "invalid-tag")
    problem(client.patch(path, json={"tags": [f"t{number}" for number in range(21)]}), 422, "too-many-tags")
    problem(client.patch(path, json={"note": "x" * 4001}), 422, "note-too-long")
    problem(client.get("/v1/jobs", params={"order": "fastest"}), 422, "invalid-request")
    problem(client.patch("/v1/jobs/job_0", json={"tags": []}), 404, "job-not-found")
    assert client.get(path).json()["tags"] == ["ocr", "customer-7"]


def test_an_artifact_is_measured_again(
    client: TestClient, finished_job: dict[str, Any], body: dict[str, Any], problem: Any
) -> None:
    path = f"/v1/jobs/{finished_job['id']}"
    idle = client.get(f"{path}/measurements").json()
    assert idle == {"items": [], "state": "idle", "asked_at": None, "error": None, "waiting": None}
    asked = client.post(f"{path}/measure")
    assert (asked.status_code, asked.json()["state"]) == (202, "waiting")
    assert client.post(f"{path}/measure").json() == client.get(f"{path}/measurements").json() == asked.json()
    waiting = client.post("/v1/jobs", json=body).json()
    problem(client.post(f"/v1/jobs/{waiting['id']}/measure"), 409, "no-artifact")
    assert client.get(f"/v1/jobs/{waiting['id']}/measurements").json() == idle
    problem(client.post("/v1/jobs/job_0/measure"), 404, "job-not-found")
    problem(client.get("/v1/jobs/job_0/measurements"), 404, "job-not-found")


def test_other_runtimes_are_named_in_the_body(
    client: TestClient, finished_job: dict[str, Any], body: dict[str, Any], problem: Any
) -> None:
    path = f"/v1/jobs/{finished_job['id']}/measure"
    assert client.post(path, json={"baselines": ["openvino"]}).json()["state"] == "waiting"
    refused = client.post(path, json={"baselines": ["openvino", "tvm"]})
    problem(refused, 422, "unknown-baseline")
    assert refused.json()["known"] == ["onnxruntime", "openvino", "openvino_default", "litert"]
    problem(client.post(path, json={"baseline": "openvino"}), 422, "invalid-request")
    asked = {**body, "options": {"baselines": ["litert", "openvino"]}}
    assert client.post("/v1/jobs", json=asked).json()["options"]["baselines"] == ["openvino", "litert"]
    problem(
        client.post("/v1/jobs", json={**body, "options": {"baselines": ["tvm"]}}), 422, "unknown-baseline"
    )
    problem(
        client.post("/v1/jobs", json={**body, "options": {"baselines": "litert"}}), 422, "invalid-request"
    )
