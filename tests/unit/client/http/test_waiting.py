"""`wait` survives a server that is away for a while, and Ctrl-C."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm.client import ClientError, Job, ServerError, UnavailableError, WaitTimeoutError

TUNING = {"id": "job_1", "state": "tuning"}
DONE = {"id": "job_1", "state": "succeeded"}


def test_a_server_that_is_restarted(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=TUNING)]
    job = client.job("job_1")
    gone = [make_reply(drop=True), make_reply(503)] * 6  # of a look, four requests
    server.replies = [make_reply(body=TUNING), *gone, make_reply(body=TUNING), *gone, make_reply(body=DONE)]
    errors: list[ClientError] = []
    seen: list[str] = []
    assert job.wait(lambda job: seen.append(job.state), poll_sec=0.001, on_away=errors.append).is_finished
    assert seen == ["tuning", "tuning", "succeeded"]
    assert len(errors) == 6
    assert {type(error) for error in errors} == {UnavailableError}


def test_a_server_that_stays_away(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=TUNING)]
    job = client.job("job_1")
    server.replies = [make_reply(drop=True)]
    with pytest.raises(UnavailableError) as away:
        job.wait(away_sec=0.0)
    assert away.value.code == "connection-lost"
    with pytest.raises(WaitTimeoutError) as late:
        job.wait(timeout_sec=0.05, poll_sec=0.001)
    assert isinstance(late.value.__cause__, UnavailableError)


def test_what_is_no_absence_ends_the_wait(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=TUNING)]
    job = client.job("job_1")
    server.replies = [make_reply(500)]
    with pytest.raises(ServerError):
        job.wait()


def test_ctrl_c_leaves_the_job_alone(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=TUNING)]
    job = client.job("job_1")

    def interrupt(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        job.wait(interrupt)
    assert "job_1 continues" in stopped.value.__notes__[0]
    assert {request.method for request in server.requests} == {"GET"}


def test_a_limit_in_the_wrong_place(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=TUNING)]
    with pytest.raises(TypeError, match="timeout_sec"):
        client.job("job_1").wait(60)
