"""Every error is a problem document."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from tunefarm_api.auth import needs
from tunefarm_api.errors.problems import status_of
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_tuning.core import errors


def test_framework_errors(client: TestClient, problem: Any) -> None:
    problem(client.get("/v1/nothing"), 404, "no-such-route")
    missing = problem(client.delete("/v1/jobs"), 405, "method-not-allowed")
    assert missing["instance"] == "/v1/jobs"
    assert client.delete("/v1/jobs").headers["allow"]


def test_validation_names_the_field_and_echoes_nothing(client: TestClient, problem: Any) -> None:
    body = {"model_id": "m", "budget": {"trials": "hunter2"}, "tunner": "xgb"}
    document = problem(client.post("/v1/jobs", json=body), 422, "invalid-request")
    assert {error["where"] for error in document["errors"]} == {"body.budget.trials", "body.tunner"}
    assert "tunner is not known here" in document["detail"]
    assert "budget.trials must be a valid integer" in document["detail"]
    missing = problem(client.post("/v1/jobs", json={}), 422, "invalid-request")
    assert missing["detail"] == "model_id is missing"
    assert "hunter2" not in json.dumps(document)
    for body in (b"{", b"\x80", b'"\xff"', b"[" * 100_000, b"1" * 5000):
        answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        problem(answer, 422, "invalid-request")
    problem(client.get("/v1/jobs", params={"limit": 0}), 422, "invalid-request")
    problem(client.get("/v1/jobs", params={"limit": 501}), 422, "invalid-request")
    lost = problem(client.get("/v1/jobs", params={"state": "lost"}), 422, "invalid-request")
    assert lost["detail"].startswith("state must be 'queued', 'extracting', ")


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/jobs?stat=failed", "the parameter stat is not known here: did you mean state?"),
        ("/v1/models/x?limit=3", "the parameter limit is not known here: there are none"),
        ("/v1/devices/x/records?limt=3", "the parameter limt is not known here: did you mean limit?"),
        ("/v1/devices/x/totals?span=day", "the parameter span is not known here: there are none"),
        (
            "/v1/audit/check?seq=1&hash=ab",
            "the parameter seq is not known here: there are head; the parameter hash is not known here",
        ),
    ],
)
def test_an_unknown_parameter_is_refused(client: TestClient, problem: Any, path: str, detail: str) -> None:
    document = problem(client.get(path), 422, "invalid-request")
    assert document["detail"].startswith(detail)
    assert document["errors"][0]["where"] == f"query.{path.partition('?')[2].partition('=')[0]}"


def test_a_model_is_not_uploaded_with_an_unknown_parameter(client: TestClient, problem: Any) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    answer = client.post("/v1/models?shapes=x%3D1,3", content=b"\x08\x0a" + bytes(9), headers=headers)
    assert "did you mean shape?" in problem(answer, 422, "invalid-request")["detail"]
    assert client.get("/v1/models").json()["items"] == []


def test_a_body_that_is_no_json_says_so(client: TestClient, problem: Any) -> None:
    answer = client.post("/v1/jobs", content=b"{not json", headers={"Content-Type": "application/json"})
    document = problem(answer, 422, "invalid-request")
    assert document["detail"] == "this is not JSON, from character 1 on"
    assert document["errors"] == [{"where": "body", "message": document["detail"]}]


def test_a_body_over_the_limit(client: TestClient, problem: Any) -> None:
    headers = {"Content-Type": "application/json"}
    big = b'{"model_id": "' + b"x" * (2 << 20) + b'"}'
    problem(client.post("/v1/jobs", content=big, headers=headers), 413, "too-large")

    def chunks() -> Any:
        for _ in range(40):
            yield b" " * (1 << 16)

    problem(client.post("/v1/jobs", content=chunks(), headers=headers), 413, "too-large")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidInputError(""), 422),
        (errors.InvalidModelError(""), 422),
        (errors.UnknownTargetError(""), 422),
        (errors.InvalidRecordError(""), 422),
        (errors.InvalidInputError("", code="too-large"), 413),
        (errors.NotFoundError(""), 404),
        (errors.NotFoundError("", code="model-deleted"), 410),
        (errors.ConflictError(""), 409),
        (errors.CancelledError(""), 409),
        (errors.LeaseLostError(""), 409),
        (errors.TransientError(""), 503),
        (errors.DeviceLostError(""), 503),
        (errors.TransientError("", code="store-full"), 507),
        (errors.TransientError("", code="database-full"), 507),
        (errors.InvariantError(""), 500),
        (errors.TunefarmError(""), 500),
    ],
)
def test_the_table(error: errors.TunefarmError, status: int) -> None:
    assert status_of(error) == status


def test_our_own_faults_tell_nothing(
    app: FastAPI, client: TestClient, problem: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(kind: str) -> None:
        if kind == "invariant":
            raise errors.InvariantError("the secret is 42", secret=42)
        raise ZeroDivisionError("the secret is 42")

    app.add_api_route("/v1/fail/{kind}", fail, dependencies=[needs("read")])
    for kind in ("invariant", "other"):
        document = problem(client.get(f"/v1/fail/{kind}", headers={"X-Request-ID": "abc-1"}), 500, "internal")
        assert "42" not in json.dumps(document)
        assert document["request_id"] == "abc-1"


def test_a_database_that_is_away(app: FastAPI, client: TestClient, settings: Settings, problem: Any) -> None:
    def fail() -> None:
        raise errors.TransientError(
            "the database is not available: no route to db.internal", code="database-unavailable"
        )

    app.add_api_route("/v1/fail", fail, dependencies=[needs("read")])
    answer = client.get("/v1/fail")
    assert "db.internal" not in problem(answer, 503, "database-unavailable")["detail"]
    assert int(answer.headers["retry-after"]) > 0


def test_odd_request_ids_are_replaced(client: TestClient) -> None:
    assert (
        client.get("/v1/jobs", headers={"X-Request-ID": "my-id_1.2"}).headers["x-request-id"] == "my-id_1.2"
    )
    for odd in ("a b", "x" * 65, "<script>"):
        answer = client.get("/v1/jobs", headers={"X-Request-ID": odd})
        assert answer.headers["x-request-id"] != odd


def test_the_log_holds_no_secret(
    app: FastAPI,
    client: TestClient,
    services: Services,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tunefarm_app.runtime.logs import configure_logging

    def fail(request: Request) -> None:
        token = request.headers["authorization"]
        raise ZeroDivisionError(len(token))

    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    token = client.headers["Authorization"].removeprefix("Bearer ")
    try:
        configure_logging("INFO", role="api")
        app.add_api_route("/v1/fail", fail, dependencies=[needs("read")])
        assert client.get("/v1/fail").status_code == 500
        client.get("/v1/jobs", params={"model_id": "in-the-query"}, headers={"X-Request-ID": "abc-2"})
        client.get("/v1/jobs", params={"cursor": "refused-in-the-query"}, headers={"X-Request-ID": "abc-3"})
    finally:
        root.handlers = handlers
        root.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    written = "\n".join(line for line in lines if '"logger": "httpx"' not in line)  # the test's own client
    for request_id, status in (("abc-2", 200), ("abc-3", 422)):
        line = next(json.loads(text) for text in written.splitlines() if request_id in text)
        logged = (line["event"], line["method"], line["path"], line["status"])
        assert logged == ("request", "GET", "/v1/jobs", status)
    assert "ZeroDivisionError" in written
    assert line["key_id"] in token
    secret = token.partition(f"{line['key_id']}_")[2]  # which may have underscores of its own
    assert len(secret) > 20
    assert secret not in written
    assert "in-the-query" not in written
