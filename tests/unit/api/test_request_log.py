"""Each line of the API's log names the job, model or device of its request."""

from __future__ import annotations

from typing import Any

import structlog
from starlette.testclient import TestClient
from structlog.testing import capture_logs


def test_ids_of_the_path_are_fields(client: TestClient, job: dict[str, Any], device: dict[str, Any]) -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as seen:
        client.get(f"/v1/jobs/{job['id']}/trials?limit=1")
        client.post(f"/v1/jobs/{job['id']}/cancel")
        client.get(f"/v1/devices/{device['id']}")
        client.get("/v1/jobs/job_nonsense")
    requests = [line for line in seen if line["event"] == "request"]
    assert [line.get("job_id") for line in requests] == [job["id"], job["id"], None, None]
    assert [line.get("device_id") for line in requests] == [None, None, device["id"], None]
    (cancelled,) = [line for line in seen if line["event"] == "job cancelled"]
    assert cancelled["request_id"] == requests[1]["request_id"]
