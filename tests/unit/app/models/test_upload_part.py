"""Uploads in parts: the blob is the file, and the offset never falls, however parts are split and processes killed."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_disk import small_disk

from tunefarm_app.models import upload_part
from tunefarm_app.models.upload_part import UploadPart
from tunefarm_app.models.uploads import begin_upload, find_upload
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_app.storage.staged_blob import StagedBlob
from tunefarm_db.repositories.models.uploads import Uploads
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, TransientError

KEY = "0" * 16
POINTS: tuple[tuple[Any, str], ...] = (
    (StagedBlob, "begin_at"),
    (StagedBlob, "write"),
    (StagedBlob, "flush"),
    (StagedBlob, "commit"),
    (BlobStore, "take"),
    (Uploads, "advance"),
    (Uploads, "note_digest"),
    (Uploads, "finish"),
    (upload_part, "submit_model"),
)
"""Where a process can be killed, before and after."""


class KilledError(BaseException):
    """Nothing of the process's own runs after this."""


@contextmanager
def killed_after(calls: int) -> Iterator[None]:
    """Raise at the n-th of the watched points, within the block."""
    left = calls

    def passing() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            passing()
            result = work(*args, **kwargs)
            passing()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in POINTS:
            patch.setattr(owner, name, watched(getattr(owner, name)))
        yield


class Sender:
    """A client with a file, and the processes that it meets."""

    def __init__(self, farm: Farm, content: bytes) -> None:
        self.services: Services = farm.services
        self.content = content
        begun = begin_upload(
            self.services,
            api_key_id=KEY,
            name="net",
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        self.path = self.services.blobs.staged_path(begun.id)
        self.id = begun.id
        self.told = 0

    def look(self) -> Upload:
        upload = find_upload(self.services, self.id, api_key_id=KEY)
        assert upload.offset_bytes >= self.told, "an offset was taken back"
        assert (upload.offset_bytes == len(self.content)) is (upload.state is UploadState.FINISHED)
        if upload.state is UploadState.OPEN and self.path.exists():
            assert self.path.read_bytes()[: upload.offset_bytes] == self.content[: upload.offset_bytes]
        self.told = upload.offset_bytes
        return upload

    def send(self, sizes: list[int], *, killed_at: int | None = None, torn: bytes | None = None) -> None:
        """Send pieces of these sizes in one request that may be killed; `torn` bytes may follow the flushed ones."""
        upload = self.look()
        if upload.state is not UploadState.OPEN:
            return
        part: UploadPart | None = None
        at = upload.offset_bytes
        try:
            with killed_after(10_000 if killed_at is None else killed_at):
                part = UploadPart(self.services, self.id, api_key_id=KEY, offset_bytes=at)
                for size in sizes:
                    part.write(self.content[at : at + size])
                    at += size
                part.end()
        except KilledError:
            if part is not None and part._staged is not None:
                os.close(part._staged._file)  # which is what the system does
                part._staged = None
        if part is not None:
            part.close()
        if torn is not None and self.path.exists():
            kept = self.path.read_bytes()[: self.look().offset_bytes]
            self.path.write_bytes(kept + torn)


@pytest.fixture(scope="module")
def one_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path_factory.mktemp("farm")))
    yield farm
    farm.services.close()


REQUESTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 120), max_size=5),
        st.none() | st.integers(0, 12),
        st.none() | st.binary(max_size=40),
    ),
    max_size=12,
)


@given(body=st.binary(min_size=1, max_size=400), requests=REQUESTS, note_every=st.sampled_from([1, 50, 1000]))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_splitting_with_kills_gives_the_same_blob(
    one_farm: Farm, body: bytes, requests: list[Any], note_every: int
) -> None:
    content = b"\x08\x0a\0" + body  # no field has the number 0: it is not cut off
    sender = Sender(one_farm, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload_part, "COMMIT_EVERY_BYTES", note_every)
        for sizes, killed_at, torn in requests:
            sender.send(sizes, killed_at=killed_at, torn=torn)
        # The last moments are where most can go wrong: each of them once more, until it gets there.
        for killed_at in range(0, 30, 3):
            sender.send([len(content)], killed_at=killed_at)
        upload = sender.look()
        if upload.state is UploadState.OPEN:
            sender.send([len(content)])
            upload = sender.look()
    assert upload.state is UploadState.FINISHED
    assert not sender.path.exists()
    digest = hashlib.sha256(content).hexdigest()
    assert one_farm.services.blobs.path(digest).read_bytes() == content
    model = one_farm.model(str(upload.model_id))
    assert (model.sha256, model.size_bytes) == (digest, len(content))


def test_each_moment_of_the_last_request(farm: Farm) -> None:
    """The last request is killed at each moment, from its first byte to the model; then the rest is sent."""
    moments = 0
    for killed_at in range(100):
        content = b"\x08\x0a" + killed_at.to_bytes(2) + bytes(300)
        sender = Sender(farm, content)
        sender.send([150])
        sender.send([len(content)], killed_at=killed_at)
        done = sender.look().state is UploadState.FINISHED
        if not done:
            moments += 1
            sender.send([len(content)])
        assert sender.look().state is UploadState.FINISHED, killed_at
        sha256 = hashlib.sha256(content).hexdigest()
        assert farm.services.blobs.path(sha256).read_bytes() == content
        with farm.services.uow.read() as repos:
            model = repos.models.find(sha256)
        assert model is not None
        assert model.id == sender.look().model_id
        if done:
            break
    assert moments >= 12


def test_a_late_request_writes_nothing(farm: Farm) -> None:
    """A request that waited for the lock meets the blob, not the file that became it."""
    content = b"\x08\x0a" + bytes(100)
    sender = Sender(farm, content)
    first = UploadPart(farm.services, sender.id, api_key_id=KEY, offset_bytes=0)
    with pytest.raises(ConflictError) as caught:
        UploadPart(farm.services, sender.id, api_key_id=KEY, offset_bytes=0)
    assert caught.value.code == "upload-locked"
    first.write(content)
    first.end()
    first.close()
    late = UploadPart(farm.services, sender.id, api_key_id=KEY, offset_bytes=len(content))
    assert late.end().model_id == sender.look().model_id
    late.close()
    assert not sender.path.exists()


def test_a_file_that_became_a_blob_before_its_lock_was_had_is_left_alone(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = farm.services.blobs
    with StagedBlob(store, "one") as staged:
        staged.begin_at(0)
        staged.write(b"whole")
    lock, blob = fcntl.flock, store.path_of("ab" * 32)

    def late_lock(file: int, how: int) -> None:
        if not blob.exists():
            store.take(store.staged_path("one"), "ab" * 32)
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", late_lock)
    with StagedBlob(store, "one") as late:
        assert not late.begin_at(5)
        assert late.begin_at(0)
    assert blob.read_bytes() == b"whole"


def test_a_disk_that_fills_up_on_the_way(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        if disk is None:
            pytest.skip("needs the right to mount a small file system")
        farm = make_farm(farm_settings(tmp_path, store_dir=disk.path / "store"))
        content = b"\x08\x0a\0" + os.urandom(6 << 20)
        sender = Sender(farm, content)
        part = UploadPart(farm.services, sender.id, api_key_id=KEY, offset_bytes=0)
        part.write(content[: 2 << 20])
        disk.fill()
        with pytest.raises(TransientError) as caught:
            part.write(content[2 << 20 :])
        assert caught.value.code == "store-full"
        part.close()
        assert 2 << 20 <= sender.look().offset_bytes < len(content)
        # Nothing of the rest is taken as long as it cannot be taken whole.
        with pytest.raises(TransientError) as caught:
            sender.send([100])
        assert caught.value.code == "store-full"
        disk.make_room()
        sender.send([len(content)])
        assert sender.look().state is UploadState.FINISHED
        assert farm.services.blobs.path(hashlib.sha256(content).hexdigest()).read_bytes() == content
        farm.services.close()


def test_a_store_without_locks_takes_nothing(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _how: int) -> None:
        raise OSError(37, "No locks available")

    sender = Sender(farm, b"\x08\x0a")
    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(TransientError) as caught:
        UploadPart(farm.services, sender.id, api_key_id=KEY, offset_bytes=0)
    assert caught.value.code == "store-unavailable"


def test_what_cannot_be_registered_now_is_registered_later(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database is full at the last moment: the bytes are a blob already, and need not be sent again."""
    content = b"\x08\x0a" + bytes(1000)
    sender = Sender(farm, content)
    sender.send([900])

    def refuse(*_: Any, **__: Any) -> None:
        raise TransientError("no room", code="database-full")

    with monkeypatch.context() as patch:
        patch.setattr(upload_part, "submit_model", refuse)
        with pytest.raises(TransientError):
            sender.send([len(content)])
    assert sender.look().offset_bytes == 900
    assert farm.services.blobs.path(hashlib.sha256(content).hexdigest()).read_bytes() == content
    sender.send([len(content)])
    assert sender.look().state is UploadState.FINISHED
