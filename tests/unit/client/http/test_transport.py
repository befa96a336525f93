"""Retries, problems as errors, and downloads that are complete or absent."""

from __future__ import annotations

import json
import os
import socket
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import (
    NO_RETRY,
    AuthenticationError,
    Client,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    RetryPolicy,
    ServerError,
    UnavailableError,
)
from tunefarm.client.errors import error_from_answer

JOB = {"id": "job_1", "model_id": "mdl_1", "state": "queued"}
MODEL = {"id": "mdl_1", "state": "ready", "name": "n"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, AuthenticationError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (429, UnavailableError),
        (500, ServerError),
        (503, UnavailableError),
    ],
)
def test_statuses_become_errors(status: int, kind: type[ClientError]) -> None:
    body = {
        "type": "urn:x",
        "title": "T",
        "status": status,
        "detail": "the why",
        "code": "a-code",
        "limit_bytes": 7,
    }
    error = error_from_answer(status, "application/problem+json; charset=utf-8", json.dumps(body).encode())
    assert type(error) is kind
    assert (error.code, error.detail, error.status, error.fields) == (
        "a-code",
        "the why",
        status,
        {"limit_bytes": 7},
    )


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b'{"detail": ', b"[]", b""])
def test_an_answer_without_a_problem_document(body: bytes) -> None:
    error = error_from_answer(500, "application/json", body)
    assert type(error) is ServerError
    assert error.code == "http-500"


def test_reads_are_repeated(server: Any, client: Client, make_problem: Any, make_reply: Any) -> None:
    server.replies = [
        make_problem(503, "unavailable"),
        make_reply(drop=True),
        make_problem(502, "bad-gateway"),
        make_reply(body=MODEL),
    ]
    assert client.models.get("mdl_1").state == "ready"
    assert len(server.requests) == 4
    assert server.requests[0].headers["Authorization"] == "Bearer tfk_id_secret"


def test_retries_end(server: Any, client: Client, make_problem: Any) -> None:
    server.replies = [make_problem(503, "busy", "come back later", headers={"Retry-After": "5"})]
    with pytest.raises(UnavailableError, match="come back later") as caught:
        client.models.get("mdl_1")
    assert caught.value.code == "busy"
    assert len(server.requests) == 4


def test_refusals_are_not_repeated(server: Any, client: Client, make_problem: Any) -> None:
    server.replies = [make_problem(404, "not-found", "no such model", id="mdl_1")]
    with pytest.raises(NotFoundError, match="no such model") as caught:
        client.models.get("mdl_1")
    assert caught.value.fields == {"id": "mdl_1"}
    server.replies = [make_problem(500, "internal")]
    with pytest.raises(ServerError):
        client.models.get("mdl_1")
    assert len(server.requests) == 2


def test_a_new_job_is_repeated_under_one_key(
    server: Any, client: Client, make_problem: Any, make_reply: Any
) -> None:
    server.replies = [make_reply(drop=True), make_problem(503, "x"), make_reply(status=201, body=JOB)]
    assert client.jobs.create("mdl_1", trials=8, target="host").id == "job_1"
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert server.requests[0].json == {"model_id": "mdl_1", "budget": {"trials": 8}, "target": "host"}
    client.jobs.create("mdl_1", trials=8)
    assert server.requests[-1].headers["Idempotency-Key"] not in keys


def test_a_delete_is_not_repeated(server: Any, client: Client, make_problem: Any) -> None:
    server.replies = [make_problem(503, "x")]
    with pytest.raises(UnavailableError):
        client.models.delete("mdl_1")
    assert len(server.requests) == 1


def test_a_delete_too_is_repeated_where_nothing_listens(connect: Any) -> None:
    waits: list[int] = []

    class Counting(RetryPolicy):
        def wait_sec(self, attempt: int, retry_after: str | None, random: Any) -> float:
            waits.append(attempt)
            return 0.0

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connecting is refused
        port = taken.getsockname()[1]
        client = connect(f"http://127.0.0.1:{port}", "k", retry=Counting(attempts=3))
        with client, pytest.raises(UnavailableError, match="cannot reach") as caught:
            client.models.delete("mdl_1")
    assert caught.value.code == "unreachable"
    assert waits == [1, 2]


def test_a_silent_server_times_out(connect: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            connect(url, "k", timeout_sec=0.2, retry=NO_RETRY) as client,
            pytest.raises(UnavailableError) as caught,
        ):
            client.models.get("mdl_1")
    assert caught.value.code == "connection-lost"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"id": 3, "state": "ready"}', b'{"state": "ready"}'])
def test_answers_that_make_no_sense(server: Any, client: Client, make_reply: Any, body: bytes) -> None:
    server.replies = [make_reply(body=body)]
    with pytest.raises(ProtocolError):
        client.models.get("mdl_1")


def test_a_garbled_answer(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=b"no gzip", headers={"Content-Encoding": "gzip"})]
    with pytest.raises(ProtocolError, match="garbled"):
        client.models.get("mdl_1")
    assert len(server.requests) == 1


def test_an_id_stays_one_path_segment(server: Any, client: Client, make_problem: Any) -> None:
    server.replies = [make_problem(404, "job-not-found")]
    for odd in ("..", "../models", "a/b", "a?b=1", "a#b", "\0", "\udcff", "é", "%2E%2E", " "):
        with pytest.raises(NotFoundError):
            client.jobs.get(odd)
        assert server.requests[-1].path.startswith("/v1/jobs/"), odd
        assert server.requests[-1].path.count("/") == 3, odd
        assert server.requests[-1].query == {}


def test_what_cannot_be_sent(server: Any, client: Client, make_reply: Any, tmp_path: Path) -> None:
    server.replies = [make_reply(body=MODEL)]
    for wrong in (
        {"trials": 1, "options": {"a": float("inf")}},
        {"trials": 1, "target": "\udcff"},
        {"trials": 1, "options": {"a": {1}}},
    ):
        with pytest.raises(InvalidRequestError) as caught:
            client.jobs.create("mdl_1", **wrong)
        assert caught.value.code == "bad-request"
    assert server.requests == []
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff.onnx"))
    file.write_bytes(b"x")
    client.models.upload(file)
    assert server.requests[-1].query["name"] == ["n?"]


def test_redirects_are_not_followed(server: Any, client: Client, make_reply: Any) -> None:
    server.replies = [make_reply(status=307, headers={"Location": "http://elsewhere.invalid/"})]
    with pytest.raises(ProtocolError, match="elsewhere"):
        client.models.get("mdl_1")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "/tmp", "http://[::"])
def test_urls_that_are_none(connect: Any, url: str) -> None:
    with pytest.raises(InvalidRequestError):
        connect(url, "k")


@pytest.mark.parametrize("key", ["é", "a b", "a\nb", "tfk_1\0", "\udcff"])
def test_keys_that_are_none(connect: Any, key: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        connect("http://127.0.0.1:1", key)
    assert caught.value.code == "bad-api-key"
    assert key not in str(caught.value)


def test_server_and_key_from_the_environment(
    server: Any, connect: Any, make_reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNEFARM_URL", raising=False)
    with pytest.raises(InvalidRequestError, match="TUNEFARM_URL"):
        connect()
    monkeypatch.setenv("TUNEFARM_URL", server.url + "/")
    monkeypatch.setenv("TUNEFARM_API_KEY", "tfk_env")
    server.replies = [make_reply(body=MODEL)]
    with connect() as client:
        client.models.get("mdl_1")
    assert server.requests[0].path == "/v1/models/mdl_1"
    assert server.requests[0].headers["Authorization"] == "Bearer tfk_env"


def test_an_upload_is_streamed_and_begins_anew(
    server: Any, client: Client, make_problem: Any, make_reply: Any, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 12_000  # 3 MB: several chunks
    file = tmp_path / "net.onnx"
    file.write_bytes(content)
    server.replies = [make_problem(503, "x"), make_reply(status=202, body={**MODEL, "state": "importing"})]
    seen: list[tuple[int, int]] = []
    model = client.models.upload(
        file, shapes={"x": (1, 3, 8, 8), "y": (2,)}, on_progress=lambda *sent: seen.append(sent)
    )
    assert model.state == "importing"
    assert [request.body == content for request in server.requests] == [True, True]
    request = server.requests[1]
    assert request.query == {"name": ["net"], "shape": ["x=1,3,8,8", "y=2"]}
    assert request.headers["Content-Length"] == str(len(content))
    assert "Transfer-Encoding" not in request.headers
    assert seen[0] == (0, len(content))
    assert seen[-1] == (len(content), len(content))


def test_a_file_that_is_not_there(client: Client, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        client.models.upload(tmp_path / "nothing.onnx")


def test_a_download_is_whole_or_not_at_all(
    server: Any, client: Client, make_reply: Any, make_problem: Any, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 12_000
    complete = make_reply(
        body=content,
        content_type="application/octet-stream",
        headers={"Content-Disposition": 'attachment; filename="net.tunefarm"'},
    )
    part = make_reply(body=content, cut=1_500_000)
    unsigned = make_problem(404, "not-signed")
    of_the_file = server.answer
    server.answer = lambda request: unsigned if request.path.endswith(".jsonl") else of_the_file(request)
    server.replies = [part, complete]
    folder = tmp_path / "out" / "deep"
    assert client.jobs.download("job_1", folder).read_bytes() == content
    assert [file.name for file in folder.iterdir()] == ["net.tunefarm"]
    assert client.jobs.download("job_1", folder, name="other.tunefarm").name == "other.tunefarm"

    server.replies = [part]
    with pytest.raises(UnavailableError):
        client.jobs.download("job_1", tmp_path / "failed")
    assert list((tmp_path / "failed").iterdir()) == []


@pytest.mark.parametrize("times", [1, 10])
def test_a_draft_that_is_replaced_during_its_download_is_downloaded_again(
    server: Any, client: Client, make_reply: Any, make_problem: Any, tmp_path: Path, times: int
) -> None:
    """The envelope beside a file is always that file's."""
    versions = [str(number).encode() for number in range(times + 1)]
    current = 0

    def answer(request: Any) -> Any:
        nonlocal current
        tag = sha256(versions[current]).hexdigest()
        if request.path.endswith("/artifact"):
            sent = versions[current]
            current = min(current + 1, times)
            headers = {"ETag": f'"{tag}"', "Content-Disposition": 'attachment; filename="net.tunefarm"'}
            return make_reply(body=sent, headers=headers, content_type="application/octet-stream")
        if request.query["sha256"] != [tag]:
            return make_problem(404, "artifact-replaced")
        return make_reply(body=tag.encode(), content_type="application/jsonl")

    server.answer = answer
    if times > 1:
        with pytest.raises(NotFoundError) as refused:
            client.jobs.download("job_1", tmp_path / "out", so_far=True)
        assert refused.value.code == "artifact-replaced"
        return
    file = client.jobs.download("job_1", tmp_path / "out", so_far=True)
    assert file.read_bytes() == versions[-1]
    beside = file.with_name(f"{file.name}.intoto.jsonl")
    assert beside.read_text() == sha256(file.read_bytes()).hexdigest()
    former = tmp_path / "former"
    former.hardlink_to(beside)
    beside.write_text("former")
    client.jobs.download("job_1", tmp_path / "out", so_far=True)
    assert (former.read_text(), beside.read_text()) == ("former", sha256(versions[-1]).hexdigest()), (
        "it is replaced, never half written"
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", ""])
def test_the_callers_file_name_cannot_leave_the_folder(client: Client, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        client.jobs.download("job_1", tmp_path, name=name)
