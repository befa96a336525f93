"""``client.jobs.source``: waits while a worker makes it, and gives up in time."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm.client import Client, ConflictError, WaitTimeoutError


def test_it_is_asked_for_until_it_is_there(
    server: Any, client: Client, make_reply: Any, make_problem: Any
) -> None:
    being_made = make_problem(409, "source-being-made", "no worker has taken it yet")
    server.replies = [being_made, being_made, make_reply(200, "é\n".encode(), content_type="text/plain")]
    assert client.jobs.source("job_1", 3, kind="asm") == "é\n"
    assert len(server.requests) == 3
    assert {request.path for request in server.requests} == {"/v1/jobs/job_1/tasks/3/source"}
    assert server.requests[0].query == {"kind": ["asm"]}
    server.replies = [being_made]
    with pytest.raises(WaitTimeoutError, match="no worker has taken it yet"):
        client.jobs.source("job_1", 3, timeout_sec=0.0)
    server.replies = [make_problem(409, "source-not-made", "no", reason="other-toolchain")]
    with pytest.raises(ConflictError) as raised:
        client.jobs.source("job_1", 3)
    assert raised.value.fields["reason"] == "other-toolchain"
