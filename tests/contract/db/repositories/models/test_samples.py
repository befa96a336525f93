"""Files of samples: their states, how long they are kept, and what they need of the store."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_db.unit_of_work import Repositories, UnitOfWork
from tunefarm_db.values import SampleFile, SampleState
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

SHA256 = "cd" * 32


def add(repos: Repositories, model_id: str, **changes: Any) -> SampleFile:
    values = {"name": "night.npz", "sha256": SHA256, "size_bytes": 9, "keep_sec": 60.0}
    return repos.samples.add(model_id=model_id, **{**values, **changes})


def test_the_life_of_a_file(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    with uow.write() as repos:
        repos.blobs.add(SHA256, size_bytes=9, media_type="x")
        samples = add(repos, model.id)
        assert (samples.state, samples.sets, samples.used) == (SampleState.CHECKING, None, [])
        assert samples.expires_at is not None
        assert repos.samples.find(model.id, SHA256) == samples
        assert repos.samples.get(model.id, samples.id) == samples
        assert repos.blobs.is_referenced(SHA256)
        ready = repos.samples.set_ready(samples.id, sets=20, used=[0, 19])
        assert (ready.state, ready.sets, ready.used) == (SampleState.READY, 20, [0, 19])
        failed = repos.samples.set_failed(samples.id, {"code": "sample-dtype"})
        assert (failed.state, failed.error, failed.sets) == (
            SampleState.FAILED,
            {"code": "sample-dtype"},
            None,
        )
        assert not repos.blobs.is_referenced(SHA256)
        assert repos.samples.set_checking(samples.id, keep_sec=60.0).error is None
        assert repos.samples.of_model(model.id)[0].state is SampleState.CHECKING
        assert repos.samples.delete_of_model(model.id)[0].sha256 == SHA256
        assert repos.samples.of_model(model.id) == ()
        assert repos.blobs.delete(SHA256)


def test_a_model_has_the_same_bytes_once(uow: UnitOfWork, seed: Any) -> None:
    first = seed.model()
    with uow.write() as repos:
        second = repos.models.add(name="other", sha256="0" * 64, size_bytes=1)
        samples = add(repos, first.id)
        add(repos, second.id)
        with pytest.raises(NotFoundError) as missing:
            repos.samples.get(second.id, samples.id)
    assert missing.value.code == "samples-not-found"
    with pytest.raises(ConflictError), uow.write() as repos:
        add(repos, first.id)


def test_files_that_no_job_uses_expire(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    with uow.write() as repos:
        kept, renewed, left = (add(repos, model.id, sha256=f"{n}" * 64).id for n in range(3))
        repos.samples.keep(kept)
        repos._connection.execute(text("UPDATE sample_files SET expires_at = expires_at - 1000"))
        assert repos.samples.renew(kept, keep_sec=60.0).expires_at is None
        repos.samples.renew(renewed, keep_sec=60.0)
    with uow.write() as repos:
        assert [gone.id for gone in repos.samples.forget_expired(limit=9)] == [left]
        assert {samples.id for samples in repos.samples.of_model(model.id)} == {kept, renewed}
        repos.samples.delete(kept)
        with pytest.raises(NotFoundError):
            repos.samples.set_ready(kept, sets=1, used=[0])
