"""Paging, the same for all lists."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_db.ids import new_id


@pytest.mark.parametrize(
    "path", ["devices", "jobs", "models", "records", "jobs/{job}/records", "jobs/{job}/trials"]
)
def test_a_cursor_that_no_list_gave_out(
    client: TestClient, job: dict[str, Any], problem: Any, path: str
) -> None:
    path = f"/v1/{path.format(job=job['id'])}"
    for cursor in ("garbage", "", "~", "job_", f"{job['id']}x", new_id("stp"), "\0", "1-1-1"):
        problem(client.get(path, params={"cursor": cursor}), 422, "invalid-cursor")
    problem(client.get(path, params={"cursor": "x" * 101}), 422, "invalid-request")
