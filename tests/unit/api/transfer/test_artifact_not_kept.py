"""An artifact whose file retention removed is reported as such, and its report remains."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from tunefarm_app.runtime.composition import Services


def test_the_file_is_gone_and_the_report_is_not(
    client: TestClient, services: Services, finished_job: dict[str, Any]
) -> None:
    path = f"/v1/jobs/{finished_job['id']}"
    assert client.get(f"{path}/artifact").status_code == 200
    with services.uow.read() as repos:
        artifact = repos.artifacts.for_job(finished_job["id"])
    assert artifact is not None
    services.blobs.delete(artifact.sha256)
    answer = client.get(f"{path}/artifact")
    assert answer.status_code == 404
    assert answer.json()["code"] == "artifact-not-kept"
    assert client.get(f"{path}/report").json()["artifact"]["sha256"] == finished_job["artifact_sha256"]
