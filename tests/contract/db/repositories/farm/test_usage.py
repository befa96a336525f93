"""What an owner uses, counted from the rows."""

from __future__ import annotations

from typing import Any

from tunefarm_db.acting import Acting, act_as
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork

OWNER = Acting(key_id="k2", owner="k1")


def size_of(uow: UnitOfWork, owner: str = "k1") -> int:
    with uow.read() as repos:
        return repos.usage.size_bytes(owner)


def test_files_count_once_and_until_they_are_deleted(uow: UnitOfWork, seed: Any) -> None:
    with act_as(OWNER):
        model = seed.model("ab" * 32, size_bytes=10)
        other = seed.model("ab" * 32, size_bytes=10, shapes={"x": [1, 3]})
        seed.model("cd" * 32, size_bytes=5)
        with uow.write() as repos:
            samples = repos.samples.add(
                model_id=model.id, name="s", sha256="ef" * 32, size_bytes=3, keep_sec=60.0
            )
    seed.model("12" * 32, size_bytes=1000)
    assert model.owner == "k1"
    assert size_of(uow) == 18
    assert size_of(uow, "k2") == 0
    with uow.write() as repos:
        repos.models.delete(other.id)
    assert size_of(uow) == 18
    with uow.write() as repos:
        repos.models.delete(model.id)
        repos.samples.delete(samples.id)
    assert size_of(uow) == 5


def test_running_uploads_of_all_keys_of_the_account_count(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        for key_id, account in (("k1", None), ("k2", "k1"), ("k3", None)):
            repos.api_keys.add(key_id=key_id, name="n", secret_sha256="x", scopes=["write"], account=account)
            repos.uploads.add(
                api_key_id=key_id,
                name="n",
                shapes={},
                metadata="",
                size_bytes=10,
                sha256=None,
                keep_sec=60.0,
            )
        repos.uploads.add(
            api_key_id="k1", name="n", shapes={}, metadata="", size_bytes=10, sha256=None, keep_sec=-1.0
        )
        first = repos.usage.reserve_bytes("k1", 7, keep_sec=60.0)
        repos.usage.reserve_bytes("k1", 1000, keep_sec=-1.0)
    assert size_of(uow) == 27, "what has expired does not count"
    with uow.write() as repos:
        repos.usage.renew_bytes(first, keep_sec=-1.0)
        assert repos.usage.size_bytes("k1") == 20
        repos.usage.renew_bytes(first, keep_sec=60.0)
        assert repos.usage.size_bytes("k1") == 27
        repos.usage.release_bytes(first)
        repos.usage.release_bytes(first)
    assert size_of(uow) == 20


def test_jobs(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    with act_as(OWNER):
        first, second = seed.job(model), seed.job(model)
    seed.job(model)
    with uow.write() as repos:
        repos.jobs.update(first.id, tuned_sec=30.0)
        assert {job.id for job in repos.usage.open_jobs("k1")} == {first.id, second.id}
        assert repos.usage.searched_sec("k1", 60.0) == 0.0
        repos.jobs.move(first.id, JobState.CANCELLED)
        assert {job.id for job in repos.usage.open_jobs("k1")} == {second.id}
        assert repos.usage.searched_sec("k1", 60.0) == 30.0
        assert repos.usage.searched_sec("k1", -60.0) == 0.0, "too long ago"
        assert repos.usage.searched_sec("k2", 60.0) == 0.0


def test_large_numbers(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        repos.usage.reserve_bytes("k1", 1 << 50, keep_sec=60.0)
        repos.usage.reserve_bytes("k1", 1 << 50, keep_sec=60.0)
    assert size_of(uow) == 1 << 51
