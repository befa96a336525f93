"""The report of a job over HTTP: as a document and as a page."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import FastAPI
from html_page import Page
from starlette.testclient import TestClient

from tunefarm_api.openapi import describe
from tunefarm_app.report.document import JobReport
from tunefarm_app.runtime.composition import Services


def test_the_report_as_a_document(client: TestClient, app: FastAPI, finished_job: dict[str, Any]) -> None:
    answer = client.get(f"/v1/jobs/{finished_job['id']}/report")
    assert answer.status_code == 200
    report = JobReport.model_validate(answer.json())
    assert report.job.id == finished_job["id"]
    assert report.artifact is not None
    assert report.artifact.sha256 == finished_job["artifact_sha256"]
    operation = describe(app)["paths"]["/v1/jobs/{job_id}/report"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema["$ref"].endswith("/JobReport")
    described = describe(app)["components"]["schemas"]["JobReport"]["properties"]
    assert set(described) == set(answer.json())
    assert all(member.get("description") or "$ref" in member for member in described.values())


def test_the_report_as_a_page(client: TestClient, finished_job: dict[str, Any]) -> None:
    path = f"/v1/jobs/{finished_job['id']}/report.html"
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "sandbox" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == 'inline; filename="net.report.html"'
    assert answer.headers["etag"] == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    assert finished_job["id"] in Page(answer.text).text
    assert client.get(path).content == answer.content
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_a_number_that_json_cannot_hold_breaks_no_report(
    client: TestClient, services: Services, finished_job: dict[str, Any]
) -> None:
    network = '{"median_sec": 1e400, "samples_sec": [1e400, 0.1], "threads": 1}'
    report = (
        f'{{"checks": {{"max_abs_error": 1e400}}, "latency": {{"tuned": {network}, "untuned": {network}}}}}'
    )
    with services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE artifacts SET report = ?", (report,))
    path = f"/v1/jobs/{finished_job['id']}"
    for name in ("report", "report.html", "measurements", ""):
        answer = client.get(f"{path}/{name}".rstrip("/"))
        assert answer.status_code == 200, answer.text


def test_no_report_before_the_end(client: TestClient, job: dict[str, Any], problem: Any) -> None:
    for name in ("report", "report.html"):
        answer = client.get(f"/v1/jobs/{job['id']}/{name}")
        assert problem(answer, 409, "not-finished")["state"] == "queued"


def test_a_cancelled_job_has_one(client: TestClient, job: dict[str, Any]) -> None:
    assert client.post(f"/v1/jobs/{job['id']}/cancel").status_code == 200
    report = client.get(f"/v1/jobs/{job['id']}/report").json()
    assert report["job"]["state"] == "cancelled"
    assert report["artifact"] is None
    assert "cancelled" in client.get(f"/v1/jobs/{job['id']}/report.html").text


def test_the_trace_of_a_job_in_any_state(
    client: TestClient, finished_job: dict[str, Any], job: dict[str, Any]
) -> None:
    trace = client.get(f"/v1/jobs/{finished_job['id']}/trace").json()
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert set(trace["otherData"]) == {"began_unix_sec", "seconds", "dropped_spans"}
    assert client.get(f"/v1/jobs/{job['id']}/trace").json()["otherData"]["dropped_spans"] == 0
    assert client.get("/v1/jobs/job_none/trace").status_code == 404


def test_strangers_get_nothing(stranger: TestClient, finished_job: dict[str, Any]) -> None:
    del stranger.headers["Authorization"]
    for name in ("report", "report.html"):
        assert stranger.get(f"/v1/jobs/{finished_job['id']}/{name}").status_code == 401


def test_jobs_side_by_side(client: TestClient, finished_job: dict[str, Any], problem: Any) -> None:
    terms = {"model_id": finished_job["model_id"], "budget": {"trials": 8}}
    other = client.post("/v1/jobs", json=terms).json()
    ids = [finished_job["id"], other["id"]]
    comparison = client.get("/v1/jobs/compare", params={"job": ids}).json()
    assert [item["id"] for item in comparison["jobs"]] == ids
    assert comparison["jobs"][0]["artifact_bytes"] == 256_000
    assert (comparison["jobs"][1]["latency_sec"], comparison["jobs"][1]["curve"]) == (None, [])
    problem(client.get("/v1/jobs/compare", params={"job": ids[:1]}), 422, "bad-comparison")
    problem(client.get("/v1/jobs/compare", params={"job": [ids[0], "job_none"]}), 404, "job-not-found")
