from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from tunefarm_app.storage.blob_store import HEAD_BYTES, BlobStore
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store")


def files(store: BlobStore, tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "store").rglob("*") if p.is_file())


def test_a_blob_is_found_by_its_hash(store, tmp_path) -> None:
    blob = store.put([b"hello, ", b"world"])
    assert blob.sha256 == hashlib.sha256(b"hello, world").hexdigest()
    assert (blob.size_bytes, blob.head, blob.created) == (12, b"hello, world", True)
    assert store.path(blob.sha256).read_bytes() == b"hello, world"
    assert not store.put([b"hello, world"]).created
    assert files(store, tmp_path) == [blob.sha256]


def test_the_head_is_the_first_bytes(store) -> None:
    assert store.put([b"ab", b"c" * 200]).head == b"ab" + b"c" * (HEAD_BYTES - 2)


def test_over_the_limit_leaves_nothing(store, tmp_path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        store.put([b"x" * 10] * 10, limit_bytes=99)
    assert caught.value.code == "too-large"
    assert caught.value.fields == {"limit_bytes": 99}
    assert files(store, tmp_path) == []
    assert store.put([b"x" * 99], limit_bytes=99).size_bytes == 99


def test_an_upload_that_breaks_off_leaves_nothing(store, tmp_path) -> None:
    def chunks():
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.put(chunks())
    assert files(store, tmp_path) == []


def test_the_same_bytes_at_once(store, tmp_path) -> None:
    threads = [threading.Thread(target=store.put, args=([b"z" * 4096] * 64,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files(store, tmp_path)) == 1


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64])
def test_what_is_not_there_is_not_found(store, name) -> None:
    with pytest.raises(NotFoundError):
        store.path(name)


def test_sweep_removes_what_a_killed_writer_left(store, tmp_path) -> None:
    writer = store.writer()
    writer.write(b"half")
    assert store.sweep(3600) == 0
    assert store.sweep(-1) == 1
    assert files(store, tmp_path) == []


def test_a_file_of_the_disk(store, tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"y" * 3_000_000)
    assert store.path(store.put_file(path).sha256).stat().st_size == 3_000_000


def test_check(store, tmp_path) -> None:
    store.check()
    assert files(store, tmp_path) == []
    (tmp_path / "flat").write_text("")
    with pytest.raises(TransientError) as caught:
        BlobStore(tmp_path / "flat").check()
    assert caught.value.code == "store-unavailable"


def test_a_full_disk_leaves_nothing(store, tmp_path) -> None:
    with pytest.raises(TransientError) as refused, store.writer() as writer:  # noqa: PT012
        writer._file.close()
        writer._file = Path("/dev/full").open("wb")  # noqa: SIM115  (the writer closes it)
        writer.write(b"hello")
        writer.commit()
    assert refused.value.code == "store-full"
    assert files(store, tmp_path) == []


def test_a_store_that_is_no_folder(store, tmp_path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(TransientError) as refused:
        store.writer()
    assert refused.value.code == "store-unavailable"
