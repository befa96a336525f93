"""A full disk is reported as such (507), and requests succeed again once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_disk import SmallDisk, small_disk
from starlette.testclient import TestClient

from tunefarm_app.settings import Settings
from tunefarm_db import schema

BINARY = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        if disk is None:
            pytest.skip("needs the right to mount a small file system")
        yield disk


@pytest.fixture
def settings(settings: Settings, disk: SmallDisk, request: pytest.FixtureRequest) -> Settings:
    """Settings with the folders that the test names on the small disk."""
    url = f"sqlite:///{disk.path / 'tunefarm.db'}"
    changes: dict[str, Any] = {
        "store": {"store_dir": disk.path / "store"},
        "database": {
            "database_url": Settings.model_validate(
                {**settings.model_dump(), "database_url": url}
            ).database_url
        },
    }[request.param]
    if "database_url" in changes:
        schema.upgrade(url)
    return settings.model_copy(update=changes)


def upload(client: TestClient, letter: bytes) -> Any:
    content = b"\x08\x0a" + letter * 50_000
    return client.post("/v1/models", params={"name": "net.onnx"}, content=content, headers=BINARY)


@pytest.mark.parametrize("settings", ["store"], indirect=True)
def test_a_store_without_room(client: TestClient, settings: Settings, disk: SmallDisk, problem: Any) -> None:
    assert upload(client, b"a").status_code == 202
    disk.fill()
    for _ in range(2):
        problem(upload(client, b"b"), 507, "store-full")
    assert list((settings.store_dir / "tmp").iterdir()) == []
    assert client.get("/readyz").status_code == 503
    assert len(client.get("/v1/models").json()["items"]) == 1
    disk.make_room()
    assert upload(client, b"b").status_code == 202


@pytest.mark.parametrize("settings", ["store"], indirect=True)
def test_an_upload_goes_on_when_there_is_room(client: TestClient, disk: SmallDisk, problem: Any) -> None:
    content = b"\x08\x0a" + b"c" * 50_000
    begun = client.post("/v1/uploads", headers={"Upload-Length": str(len(content))})
    path = begun.headers["location"]

    def send(start: int, end: int) -> Any:
        headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(start)}
        return client.patch(path, content=content[start:end], headers=headers)

    assert send(0, 20_000).status_code == 204
    disk.fill()
    problem(send(20_000, len(content)), 507, "store-full")
    assert client.head(path).headers["upload-offset"] == "20000"
    disk.make_room()
    assert send(20_000, len(content)).status_code == 204
    assert client.get(path).json()["state"] == "finished"


@pytest.mark.parametrize("settings", ["database"], indirect=True)
def test_a_database_without_room(
    client: TestClient, ready_model: Any, device: Any, disk: SmallDisk, problem: Any
) -> None:
    disk.fill()
    job_request = {"model_id": ready_model.id, "budget": {"trials": 64}}
    refused = client.post("/v1/jobs", json=job_request)
    # Requests succeed while the journal has room.
    for seed in range(1000):
        if refused.status_code != 201:
            break
        refused = client.post("/v1/jobs", json={**job_request, "seed": seed})
    problem(refused, 507, "database-full")
    assert client.get("/v1/models").status_code == 200
    disk.make_room()
    assert client.post("/v1/jobs", json=job_request).status_code == 201
