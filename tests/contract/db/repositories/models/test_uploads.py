"""Uploads in parts: their offset, their owner, and when they are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

MINE, OTHERS = "0" * 16, "1" * 16
LARGE_BYTES = 3 << 30


def add(uow: UnitOfWork, **changes: Any) -> Upload:
    values = {"api_key_id": MINE, "name": "net", "shapes": {"x": (1, 3)}, "metadata": "", "keep_sec": 60.0}
    with uow.write() as repos:
        return repos.uploads.add(**{**values, "size_bytes": LARGE_BYTES, "sha256": None, **changes})


def test_an_upload_from_its_beginning_to_its_end(uow: UnitOfWork) -> None:
    upload = add(uow)
    assert (upload.state, upload.offset_bytes, upload.shapes) == (UploadState.OPEN, 0, {"x": [1, 3]})
    with uow.write() as repos:
        repos.uploads.advance(upload.id, 0, LARGE_BYTES - 1, keep_sec=3600.0)
        repos.uploads.note_digest(upload.id, "ab" * 32)
    with uow.read() as repos:
        moved = repos.uploads.get(upload.id, api_key_id=MINE)
    assert moved.offset_bytes == LARGE_BYTES - 1
    assert moved.expires_at > upload.expires_at
    assert moved.digest == "ab" * 32
    with uow.write() as repos:
        done = repos.uploads.finish(upload.id, "mdl_1")
    assert (done.state, done.offset_bytes, done.model_id) == (UploadState.FINISHED, LARGE_BYTES, "mdl_1")


def test_only_from_where_it_is(uow: UnitOfWork) -> None:
    upload = add(uow)
    for change in (
        lambda repos: repos.uploads.advance(upload.id, 5, 9, keep_sec=60.0),
        lambda repos: (
            repos.uploads.fail(upload.id, {"code": "x"}),
            repos.uploads.finish(upload.id, "mdl_1"),
        ),
    ):
        with pytest.raises(ConflictError) as caught, uow.write() as repos:
            change(repos)
        assert caught.value.code == "upload-offset"
        assert caught.value.fields == {"offset_bytes": 0}
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.uploads.advance("upl_none", 0, 1, keep_sec=60.0)


def test_each_key_has_its_own(uow: UnitOfWork) -> None:
    mine, others = add(uow), add(uow, api_key_id=OTHERS)
    with uow.read() as repos:
        assert [upload.id for upload in repos.uploads.of_key(MINE, limit=10)] == [mine.id]
        assert repos.uploads.count_open(MINE) == 1
        with pytest.raises(NotFoundError):
            repos.uploads.get(others.id, api_key_id=MINE)


def test_what_is_over_is_forgotten(uow: UnitOfWork) -> None:
    kept, over, failed = add(uow), add(uow, keep_sec=-1.0), add(uow)
    with uow.write() as repos:
        repos.uploads.fail(failed.id, {"code": "x"})
    with uow.read() as repos:
        assert repos.uploads.count_open(MINE) == 1
        assert {upload.id for upload in repos.uploads.of_key(MINE, limit=10)} == {kept.id, failed.id}
        assert repos.uploads.open_among([kept.id, failed.id, "upl_none"]) == {kept.id}
        with pytest.raises(NotFoundError):
            repos.uploads.get(over.id, api_key_id=MINE)
    with uow.write() as repos:
        assert repos.uploads.forget_expired(limit=10) == (over.id,)
        assert repos.uploads.forget_expired(limit=10) == ()
        assert repos.uploads.delete(kept.id)
        assert not repos.uploads.delete(kept.id)
