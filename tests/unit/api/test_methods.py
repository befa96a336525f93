"""HTTP methods: HEAD wherever there is GET, and the list of an answer 405."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tunefarm_api.auth import needs

PATHS = ["/healthz", "/readyz", "/v1/models", "/v1/jobs", "/v1/jobs/{job}", "/v1/openapi.json", "/v1/jobs/no"]


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_the_body(client: TestClient, job: dict[str, Any], path: str) -> None:
    headers = {"X-Request-ID": "same"}
    fetched = client.get(path.format(job=job["id"]), headers=headers)
    head = client.head(path.format(job=job["id"]), headers=headers)
    assert head.status_code == fetched.status_code
    assert head.content == b""
    assert head.headers == fetched.headers
    assert int(head.headers["content-length"]) == len(fetched.content)


def test_head_of_an_artifact_does_not_read_it(
    client: TestClient, finished_job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, headers = f"/v1/jobs/{finished_job['id']}/artifact", {"X-Request-ID": "same"}
    fetched = client.get(path, headers=headers)
    assert fetched.content == finished_job["artifact"]

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the file is read")

    monkeypatch.setattr("anyio.open_file", fail)
    head = client.head(path, headers=headers)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == fetched.headers
    part = client.head(path, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.headers["content-length"], part.content) == (206, "10", b"")


def test_head_needs_what_get_needs(stranger: TestClient) -> None:
    assert stranger.head("/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/models", "GET, HEAD, POST"),
        ("DELETE", "/v1/jobs", "GET, HEAD, POST"),
        ("POST", "/v1/models/mdl_1", "DELETE, GET, HEAD, PATCH"),
        ("OPTIONS", "/v1/jobs/job_1/cancel", "POST"),
        ("GET", "/v1/jobs/job_1/cancel", "POST"),
        ("PATCH", "/v1/jobs/job_1/artifact", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
def test_a_refusal_names_all_methods_of_the_path(
    client: TestClient, problem: Any, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    document = problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allowed
    assert document["detail"].startswith(f"{method} is not a method of {path}")


def test_head_where_there_is_no_get(client: TestClient) -> None:
    answer = client.head("/v1/jobs/job_1/cancel")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")


def test_a_route_of_its_own_counts(app: FastAPI, client: TestClient) -> None:
    app.add_api_route("/v1/jobs", list, methods=["PUT"], dependencies=[needs("read")])
    assert client.delete("/v1/jobs").headers["allow"] == "GET, HEAD, POST, PUT"
