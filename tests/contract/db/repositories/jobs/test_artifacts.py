"""Drafts, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_db.unit_of_work import UnitOfWork

UNTUNED, PARTLY, OTHER = "d" * 64, "e" * 64, "f" * 64


@pytest.fixture
def job_ids(uow: UnitOfWork, seed: Any) -> list[str]:
    """Return three jobs, and register the drafts' blobs."""
    model = seed.model()
    ids = [seed.job(model).id for _ in range(3)]
    with uow.write() as repos:
        for sha256 in (UNTUNED, PARTLY, OTHER):
            repos.blobs.add(sha256, size_bytes=100, media_type="application/octet-stream")
    return ids


def put(uow: UnitOfWork, job_id: str, sha256: str, *, covered: int = 0, size_bytes: int = 100) -> bool:
    with uow.write() as repos:
        return repos.drafts.put(
            job_id, sha256=sha256, size_bytes=size_bytes, name="a.tunefarm", tasks=5, covered=covered
        )


def test_a_draft_is_replaced_by_one_with_no_fewer_tuned_kernels(uow: UnitOfWork, job_ids: list[str]) -> None:
    first, second, without = job_ids
    assert put(uow, first, UNTUNED)
    assert put(uow, first, PARTLY, covered=3)
    assert not put(uow, first, UNTUNED), "a late untuned one"
    assert put(uow, first, OTHER, covered=3)
    assert put(uow, second, UNTUNED)
    with uow.read() as repos:
        drafts = repos.drafts.of([first, second, without])
        assert repos.drafts.of([]) == {}
        assert repos.blobs.is_referenced(OTHER)
        assert not repos.blobs.is_referenced(PARTLY)
        assert repos.retention.is_needed(OTHER, 0.0)
    assert {job_id: (draft.sha256, draft.covered) for job_id, draft in drafts.items()} == {
        first: (OTHER, 3),
        second: (UNTUNED, 0),
    }
    with uow.write() as repos:
        repos.drafts.delete(first)
        repos.drafts.delete(first)
        assert list(repos.drafts.of(job_ids)) == [second]


def test_the_oldest_give_way_below_a_limit(uow: UnitOfWork, job_ids: list[str]) -> None:
    for age, job_id in enumerate(job_ids):
        put(uow, job_id, UNTUNED)
        with uow.write() as repos:
            repos._connection.execute(
                text("UPDATE drafts SET created_at = created_at - :age WHERE job_id = :id"),
                {"age": 1000 * (3 - age), "id": job_id},
            )
    with uow.write() as repos:
        repos.drafts.make_room(job_ids[2], limit_bytes=300)
        assert len(repos.drafts.of(job_ids)) == 3
        repos.drafts.make_room(job_ids[0], limit_bytes=299)
        assert set(repos.drafts.of(job_ids)) == {job_ids[0], job_ids[2]}
        repos.drafts.make_room(job_ids[2], limit_bytes=150)
        assert list(repos.drafts.of(job_ids)) == job_ids[2:]
    put(uow, job_ids[0], UNTUNED)
    with uow.write() as repos:
        assert repos.drafts.forget(500.0, limit=9) == 1
        assert list(repos.drafts.of(job_ids)) == job_ids[:1]
