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
