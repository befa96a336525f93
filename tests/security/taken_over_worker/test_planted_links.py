"""A worker that was taken over writes to the store: it plants links there to files that the API reads, and it does not.

Before, the API sent what a link led to, the first API key in the compose file for example, as a job's artifact; it wrote the parts of an
upload to the file that a link led to; and a backup took such files along.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_server import api_server
from api_world import World
from app_farm import Farm, farm_settings, make_farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.operations.backup import back_up
from tunefarm_app.records.kernel_sources import MEDIA_TYPE, Progress, source_of
from tunefarm_db.values import SourceState
from tunefarm_tuning.core.errors import NotFoundError, TransientError

SECRET = b"tfk_of_an_administrator"


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path), ReplayEngine())
    yield farm
    farm.services.close()


@pytest.fixture
def world(farm: Farm) -> World:
    return World(farm)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the API's, outside of the store."""
    path = tmp_path / "keys" / "api-key"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


def artifact_path(world: World) -> Path:
    with world.farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(world.known["job_id"])
    assert artifact is not None
    return world.farm.services.blobs.path_of(artifact.sha256)


def in_place_of_the_file(blob: Path, secret: Path) -> None:
    blob.unlink()
    blob.symlink_to(secret)


def over_a_link_within_the_store(blob: Path, secret: Path) -> None:
    blob.unlink()
    (blob.parent / "link").symlink_to(secret)
    blob.symlink_to("link")


def in_place_of_its_folder(blob: Path, secret: Path) -> None:
    shutil.rmtree(blob.parent)
    (secret.parent / blob.name).write_bytes(SECRET)
    blob.parent.symlink_to(secret.parent)


def in_place_of_all_blobs(blob: Path, secret: Path) -> None:
    blobs = blob.parent.parent.parent
    shutil.rmtree(blobs)
    there = secret.parent / blob.relative_to(blobs)
    there.parent.mkdir(parents=True)
    there.write_bytes(SECRET)
    blobs.symlink_to(secret.parent)


def a_folder(blob: Path, _secret: Path) -> None:
    blob.unlink()
    blob.mkdir()


def a_pipe(blob: Path, _secret: Path) -> None:
    blob.unlink()
    os.mkfifo(blob)


def a_socket(blob: Path, _secret: Path) -> None:
    blob.unlink()
    here = Path.cwd()
    os.chdir(blob.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(blob.name)
    finally:
        os.chdir(here)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    way.__name__.replace("_", "-"): way
    for way in (
        in_place_of_the_file,
        over_a_link_within_the_store,
        in_place_of_its_folder,
        in_place_of_all_blobs,
        a_folder,
        a_pipe,
        a_socket,
    )
}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("way", WAYS)
def test_no_download_follows_a_link(way: str, world: World, secret: Path, tmp_path: Path) -> None:
    services, blob = world.farm.services, artifact_path(world)
    url = f"/v1/jobs/{world.known['job_id']}/artifact"
    with api_server(world.farm) as server, _client(server.url, world.keys["read"]) as client:
        whole = client.get(url)
        assert whole.status_code == 200
        assert whole.content == blob.read_bytes()
        WAYS[way](blob, secret)
        answer = client.get(url)
        assert (answer.status_code, answer.json()["code"]) == (404, "artifact-not-kept")
        assert SECRET not in answer.content
        assert client.head(url).status_code == 404
        assert server.faults == []
    assert not services.blobs.has(blob.name)
    with pytest.raises(NotFoundError):
        services.blobs.path(blob.name)
    backup = tmp_path / "farm.backup"
    back_up(services.settings.database_url.get_secret_value(), services.blobs, backup)
    with tarfile.open(backup) as archive:
        assert f"store/{blob.name}" not in archive.getnames()


def test_a_download_is_of_the_file_that_was_checked(world: World, secret: Path) -> None:
    """A link that comes between the check and the reading is too late."""
    blob = artifact_path(world)
    held = blob.read_bytes()
    with world.farm.services.blobs.open(blob.name) as file:
        in_place_of_the_file(blob, secret)
        assert file.read() == held


@pytest.mark.parametrize("name", ["the file", "its folder"])
def test_no_upload_is_written_over_a_link(name: str, world: World, secret: Path) -> None:
    services, upload_id = world.farm.services, world.known["upload_id"]
    staged = services.blobs.staged_path(upload_id)
    if name == "the file":
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.symlink_to(secret)
    else:
        shutil.rmtree(staged.parent, ignore_errors=True)
        staged.parent.symlink_to(secret.parent)
    with api_server(world.farm) as server, _client(server.url, world.keys["admin"]) as client:
        headers = {
            "Upload-Offset": "0",
            "Tus-Resumable": "1.0.0",
            "Content-Type": "application/offset+octet-stream",
        }
        answer = client.patch(f"/v1/uploads/{upload_id}", content=b"\x08\x01", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
    assert secret.read_bytes() == SECRET
    assert [path.name for path in secret.parent.iterdir()] == [secret.name]
    if name == "its folder":
        with pytest.raises(TransientError):
            services.blobs.put([b"a new blob"])


def test_a_source_that_unpacks_to_gigabytes_takes_no_memory(world: World) -> None:
    """A mebibyte of gzip is a gigabyte of zeros. Before, the API unpacked all of it to show a page."""
    services, job_id = world.farm.services, world.known["job_id"]
    assert source_of(services, job_id, 0, ask=False).progress is Progress.READY
    bomb = services.blobs.put([gzip.compress(bytes(1 << 30), compresslevel=9)])
    with services.uow.write() as repos:
        repos.blobs.add(bomb.sha256, size_bytes=bomb.size_bytes, media_type=MEDIA_TYPE)
    with services.uow.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE kernel_sources SET sha256 = ? WHERE state = ?", (bomb.sha256, SourceState.READY.value)
        )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert source_of(services, job_id, 0, ask=False).progress is Progress.UNASKED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # in KiB


def _client(url: str, key: str) -> Any:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
