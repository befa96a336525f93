"""Identifiers of rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tunefarm_db.ids import is_id, new_id


def test_ids_sort_by_birth_and_never_repeat() -> None:
    ids = [new_id("job") for _ in range(5000)]
    assert ids == sorted(ids)
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda _: new_id("stp"), range(5000)))
    assert len(set(many)) == 5000


def test_ids_are_plain() -> None:
    prefix, _, rest = new_id("mdl").partition("_")
    assert prefix == "mdl"
    assert len(rest) == 26
    assert rest.isalnum()
    assert rest == rest.lower()


def test_ids_are_told_from_other_text() -> None:
    job = new_id("job")
    assert is_id(job, "job")
    for other in (new_id("stp"), "", "job_", job[:-1], job + "0", job + "\n", job.upper(), f" {job}"):
        assert not is_id(other, "job")
