"""What people mean by ids, parts of ids and names."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.errors import InvalidInputError


def test_an_id_and_its_parts_mean_it(seed: Any, uow: UnitOfWork) -> None:
    job = seed.job()
    device = seed.device("rack-1")
    with uow.read() as repos:
        find = repos.references.find
        for text in (job.id, job.id[-6:], f"…{job.id[-6:]}", job.id[:-2], job.id[4:-2], f" {job.id[-4:]} "):
            assert find("job", text) == job.id, text
        assert find("device", "rack-1") == find("device", device.id[-5:]) == device.id


@pytest.mark.parametrize("text", ["", " ", "…", "job_", "job_0", "none at all", "%%%%", "____", "job_%"])
def test_what_means_nothing_is_returned(seed: Any, uow: UnitOfWork, text: str) -> None:
    job = seed.job()
    with uow.read() as repos:
        assert repos.references.find("job", text) == text
        assert repos.references.find("job", job.id[-3:]) == job.id[-3:], "too short to be meant"
        assert repos.references.find("model", job.id) == job.id, "a job is no model"


def test_one_of_several_is_not_guessed(seed: Any, uow: UnitOfWork) -> None:
    jobs = [seed.job(tuner=f"t{number}") for number in range(7)]
    same = jobs[0].id[:8]
    assert all(job.id.startswith(same) for job in jobs)
    with (
        uow.read() as repos,
        pytest.raises(InvalidInputError, match="more than 5 jobs") as e,
    ):
        repos.references.find("job", same)
    assert e.value.code == "ambiguous"
    assert len(e.value.fields["ids"]) == 5


def test_names_of_models_and_their_jobs(seed: Any, uow: UnitOfWork) -> None:
    first, second, other = (
        seed.model(sha256=f"{number:064}", name=name) for number, name in enumerate(("ocr", "ocr", "ocr@2"))
    )
    assert [model.version for model in (first, second, other)] == [1, 2, 1]
    job = seed.job(first)
    with uow.write() as repos:
        find = repos.references.find
        assert find("model", "ocr") == second.id
        assert find("model", "ocr@1") == first.id
        assert find("model", "ocr@2") == find("model", "ocr@2@1") == other.id, "a name comes before a version"
        for text in ("ocr@3", "asr", "@1", "ocr@99999999999999999999"):
            assert find("model", text) == text
        assert find("job", "ocr") == find("job", "ocr@1") == job.id
        repos.models.delete(second.id)
        assert find("model", "ocr") == first.id
        assert find("model", second.id[-6:]) == second.id[-6:], "it was deleted"
