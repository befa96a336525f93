"""Uploads that come in parts, over tus 1.0."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.models.removal import sweep_blobs
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_app.storage.blob_store import HEAD_BYTES
from tunefarm_app.storage.staged_blob import StagedBlob

ONNX_BYTES = b"\x08\x0a" + bytes(range(200)) * 40
TUS = {"Tus-Resumable": "1.0.0"}


def metadata(**texts: str) -> str:
    return ",".join(f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in texts.items())


def begin(client: TestClient, content: bytes = ONNX_BYTES, headers: Any = None, **texts: str) -> Any:
    described = {"Upload-Metadata": metadata(**texts)} if texts else {}
    length = {"Upload-Length": str(len(content))}
    return client.post("/v1/uploads", headers={**TUS, **length, **described, **(headers or {})})


def send(client: TestClient, path: str, content: Any, offset: int | str, **headers: str) -> Any:
    sent = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset), **TUS, **headers}
    return client.patch(path, content=content, headers=sent)


def begun(client: TestClient, content: bytes = ONNX_BYTES, **texts: str) -> str:
    answer = begin(client, content, **texts)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_in_three_parts_is_the_model_that_one_post_makes(
    client: TestClient, services: Services, settings: Settings
) -> None:
    facts = {
        "filename": "net",
        "shapes": "x=1,3\n\ny=2",
        "values": "sr=16000\n",
        "filetype": "application/onnx",
    }
    answer = begin(client, **facts)
    assert answer.status_code == 201, answer.text
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert answer.headers["upload-offset"] == "0"
    assert answer.headers["upload-expires"].endswith("GMT")
    path = answer.headers["location"]
    assert path == f"/v1/uploads/{answer.json()['id']}"
    for start, end in ((0, 1), (1, 5000), (5000, 5000)):
        answer = send(client, path, ONNX_BYTES[start:end], start)
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(end))
        head = client.head(path, headers=TUS)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["upload-offset"] == str(end)
        assert head.headers["upload-length"] == str(len(ONNX_BYTES))
        assert head.headers["cache-control"] == "no-store"
        assert head.headers["upload-metadata"] == metadata(**facts)
    answer = send(client, path, ONNX_BYTES[5000:], 5000)
    assert answer.headers["upload-offset"] == str(len(ONNX_BYTES))
    upload = client.get(path).json()
    assert upload["values"] == {"sr": 16000}
    assert (upload["state"], upload["offset_bytes"], upload["error"]) == ("finished", len(ONNX_BYTES), None)
    model = client.get(f"/v1/models/{upload['model_id']}").json()
    assert (model["name"], model["state"], model["shapes"]) == ("net", "importing", {"x": [1, 3], "y": [2]})
    assert model["values"] == {"sr": 16000}
    assert services.blobs.path(model["sha256"]).read_bytes() == ONNX_BYTES
    assert len(files_in(settings.store_dir)) == 1
    at_once = client.post(
        "/v1/models",
        params={"name": "other", "shape": ["x=1,3", "y=2"], "value": "sr=16000"},
        content=ONNX_BYTES,
        headers={"Content-Type": "application/octet-stream"},
    )
    assert (at_once.status_code, at_once.json()) == (200, model)
    again = begun(client, shapes="x=1,3\ny=2", values="sr=16000")
    assert send(client, again, ONNX_BYTES, 0).status_code == 204
    assert client.get(again).json()["model_id"] == model["id"]
    # A request that comes once more, its answer lost, changes nothing.
    assert send(client, again, b"", len(ONNX_BYTES)).status_code == 204


def test_what_the_server_can(client: TestClient, settings: Settings) -> None:
    answer = client.options("/v1/uploads")
    assert answer.status_code == 204
    assert answer.headers["tus-version"] == "1.0.0"
    assert answer.headers["tus-extension"] == "creation,expiration,termination"
    assert answer.headers["tus-max-size"] == str(settings.max_upload_bytes)
    assert "OPTIONS" in client.put("/v1/uploads").headers["allow"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Upload-Length": "100001"}, 413, "too-large"),
        ({"Upload-Length": "0"}, 422, "empty-file"),
        ({"Upload-Length": "-1"}, 422, "bad-length"),
        ({"Upload-Length": "9" * 19}, 422, "bad-length"),
        ({"Upload-Length": ""}, 422, "bad-length"),
        ({"Upload-Metadata": "filename %%%"}, 422, "bad-metadata"),
        ({"Upload-Metadata": "filename /w=="}, 422, "bad-metadata"),
        ({"Upload-Metadata": "a YQ==,a YQ=="}, 422, "bad-metadata"),
        ({"Upload-Metadata": f"a {'YWFh' * 3000}"}, 422, "bad-metadata"),
        ({"Upload-Metadata": metadata(shapes="tokens")}, 422, "bad-shape"),
        ({"Upload-Metadata": metadata(values="sr=fast")}, 422, "bad-value"),
        ({"Upload-Metadata": metadata(sha256="abc")}, 422, "bad-digest"),
        ({"Tus-Resumable": "0.2.2"}, 412, "tus-version"),
    ],
)
def test_what_cannot_be_begun(
    client: TestClient, problem: Any, headers: dict[str, str], status: int, code: str
) -> None:
    answer = begin(client, headers=headers)
    problem(answer, status, code)
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert ("tus-version" in answer.headers) is (status == 412)
    assert client.get("/v1/uploads").json()["items"] == []


def test_a_part_must_begin_where_the_upload_is(client: TestClient, problem: Any) -> None:
    path = begun(client)
    assert problem(send(client, path, ONNX_BYTES[5:9], 5), 409, "upload-offset")["offset_bytes"] == 0
    assert send(client, path, ONNX_BYTES[:100], 0).status_code == 204
    for offset in (0, 99, 101):
        assert problem(send(client, path, b"..", offset), 409, "upload-offset")["offset_bytes"] == 100
    for offset in ("", "-1", "1e3", "9" * 19):
        problem(send(client, path, b"..", offset), 422, "bad-offset")
    problem(send(client, path, b"..", 100, **{"Content-Type": "text/plain"}), 415, "unsupported-media-type")
    problem(send(client, path, b"..", 100, **{"Tus-Resumable": "2.0.0"}), 412, "tus-version")
    too_much = ONNX_BYTES[100:] + b"."
    problem(send(client, path, too_much, 100), 422, "upload-overrun")
    problem(send(client, path, iter([too_much]), 100), 422, "upload-overrun")
    assert send(client, path, ONNX_BYTES[100:], 100).status_code == 204


def test_one_request_writes_at_a_time(client: TestClient, services: Services, problem: Any) -> None:
    path = begun(client)
    with StagedBlob(services.blobs, path.rpartition("/")[2]):
        answer = send(client, path, ONNX_BYTES, 0)
        problem(answer, 423, "upload-locked")
        assert int(answer.headers["retry-after"]) > 0
        assert client.head(path).headers["upload-offset"] == "0"
    assert send(client, path, ONNX_BYTES, 0).status_code == 204


def test_an_upload_is_its_keys_alone(
    app: FastAPI, client: TestClient, services: Services, problem: Any
) -> None:
    path = begun(client)
    assert send(client, path, ONNX_BYTES[:10], 0).status_code == 204
    mine = client.headers["Authorization"]
    client.headers["Authorization"] = f"Bearer {create_api_key(services, name='other')[1]}"
    assert client.head(path).status_code == 404
    for answer in (client.get(path), client.delete(path), send(client, path, ONNX_BYTES[10:], 10)):
        problem(answer, 404, "upload-not-found")
    assert client.get("/v1/uploads").json()["items"] == []
    client.headers["Authorization"] = mine
    assert [item["offset_bytes"] for item in client.get("/v1/uploads").json()["items"]] == [10]


def test_ending_an_upload_drops_its_bytes(client: TestClient, settings: Settings, problem: Any) -> None:
    path = begun(client)
    send(client, path, ONNX_BYTES[:10], 0)
    assert len(files_in(settings.store_dir)) == 1
    assert client.delete(path, headers=TUS).status_code == 204
    assert files_in(settings.store_dir) == []
    for answer in (client.get(path), client.delete(path), send(client, path, ONNX_BYTES[10:], 10)):
        problem(answer, 404, "upload-not-found")
    assert files_in(settings.store_dir) == []


def test_what_is_no_model_is_refused_with_its_first_bytes(
    client: TestClient, settings: Settings, problem: Any
) -> None:
    zipped = b"PK\x03\x04" + bytes(5000)
    path = begun(client, zipped)
    assert send(client, path, zipped[: HEAD_BYTES - 1], 0).status_code == 204, "too little to know it by"
    problem(send(client, path, zipped[HEAD_BYTES - 1 : 200], HEAD_BYTES - 1), 422, "not-protobuf")
    problem(send(client, path, zipped[200:], 200), 422, "not-protobuf")
    answer = client.get(path)
    assert answer.json()["state"] == "failed"
    assert answer.json()["error"]["code"] == "not-protobuf"
    assert "upload-offset" not in answer.headers
    assert files_in(settings.store_dir) == []


def test_the_digest_is_held_to(client: TestClient, settings: Settings, problem: Any) -> None:
    digest = hashlib.sha256(ONNX_BYTES).hexdigest()
    right = begun(client, sha256=digest)
    assert send(client, right, ONNX_BYTES[:7], 0).status_code == 204
    assert send(client, right, ONNX_BYTES[7:], 7).status_code == 204
    damaged = ONNX_BYTES[:-1] + b"!"
    wrong = begun(client, sha256=digest)
    document = problem(send(client, wrong, damaged, 0), 422, "digest-mismatch")
    assert document["sha256"] == hashlib.sha256(damaged).hexdigest()
    assert client.get(wrong).json()["state"] == "failed"
    assert len(files_in(settings.store_dir)) == 1


def test_a_key_has_so_many_unfinished_uploads(
    client: TestClient, problem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm_app.models.uploads.MAX_OPEN", 2)
    first = begun(client)
    begun(client)
    problem(begin(client), 409, "too-many-uploads")
    assert send(client, first, ONNX_BYTES, 0).status_code == 204
    begun(client)


def test_abandoned_uploads_are_deleted(
    client: TestClient, services: Services, settings: Settings, problem: Any
) -> None:
    left = begun(client)
    send(client, left, ONNX_BYTES[:10], 0)
    sweep_blobs(services, temporary_age_sec=0)
    assert client.head(left).headers["upload-offset"] == "10"
    services.blobs.staged_path("upl_nobodys").write_bytes(b"..")
    with services.uow.write() as repos:
        repos.uploads.advance(left.rpartition("/")[2], 10, 10, keep_sec=-1.0)
    problem(client.get(left), 404, "upload-not-found")
    problem(send(client, left, ONNX_BYTES[10:], 10), 404, "upload-not-found")
    assert client.get("/v1/uploads").json()["items"] == []
    assert sweep_blobs(services, temporary_age_sec=0) == 2
    assert files_in(settings.store_dir) == []


def test_bytes_that_are_gone_are_asked_for_again(client: TestClient, services: Services) -> None:
    """As after a restore: the database came back, the staging area did not."""
    path = begun(client)
    send(client, path, ONNX_BYTES[:10], 0)
    services.blobs.staged_path(path.rpartition("/")[2]).unlink()
    assert client.head(path).headers["upload-offset"] == "0"
    assert send(client, path, ONNX_BYTES[10:], 10).status_code == 409
    assert send(client, path, ONNX_BYTES, 0).status_code == 204
    assert client.get(path).json()["state"] == "finished"
