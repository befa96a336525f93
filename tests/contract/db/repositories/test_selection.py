"""Lists of jobs: filters, orders, and pages in any order, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.selection import JobOrder
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import InvalidInputError


@pytest.fixture
def jobs(seed: Any, uow: UnitOfWork) -> list[Job]:
    """Five jobs of three models: two with measured artifacts, one with kernels alone, one without anything."""
    names = ("Ocr_rec", "detect%", "asr", "asr", "zoo")
    models = {name: seed.model(sha256=f"{names.index(name):064}", name=name) for name in dict.fromkeys(names)}
    jobs = [seed.job(models[name], seed=number, device_key="arm") for number, name in enumerate(names)]
    numbers = ((0.004, 2.0, 1.5), (0.002, 3.0, None), None, (0.002, 3.0, 0.8), None)
    with uow.write() as repos:
        for job, measured in zip(jobs, numbers, strict=True):
            if measured is not None:
                sec, untuned, runtime = measured
                repos.jobs.set_numbers(
                    job.id, network_latency_sec=sec, speedups={}, over_untuned=untuned, over_runtime=runtime
                )
        repos.jobs.update(jobs[2].id, best_latency_sec=0.001, trials=7)
        repos.jobs.move(jobs[4].id, JobState.CANCELLED)
        repos.jobs.label(
            jobs[0].id, tags=["ocr", "customer-7"], note="From the Übungs-build on Monday: 50% faster"
        )
        repos.jobs.label(jobs[1].id, tags=["ocr-2", "größe"])
        return [repos.jobs.get(job.id) for job in jobs]


def pages(uow: UnitOfWork, order: JobOrder, limit: int) -> Iterator[str]:
    cursor = None
    while True:
        with uow.read() as repos:
            page = repos.jobs.list(order=order, cursor=cursor, limit=limit)
        yield from (job.id for job in page.items)
        if (cursor := page.next_cursor) is None:
            return


ORDERS = {
    JobOrder.NEWEST: [4, 3, 2, 1, 0],
    JobOrder.OLDEST: [0, 1, 2, 3, 4],
    JobOrder.MODEL: [3, 2, 1, 0, 4],
    JobOrder.STATE: [4, 3, 2, 1, 0],
    JobOrder.TRIALS: [2, 4, 3, 1, 0],
    JobOrder.LATENCY: [2, 3, 1, 0, 4],
    JobOrder.SPEEDUP: [3, 1, 0, 4, 2],
    JobOrder.RUNTIME: [0, 3, 4, 2, 1],
}


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("order", ORDERS)
def test_pages_in_any_order_have_each_job_once(uow: UnitOfWork, jobs: list[Job], order: JobOrder) -> None:
    expected = [jobs[number].id for number in ORDERS[order]]
    for limit in (1, 2, 3, 500):
        assert list(pages(uow, order, limit)) == expected


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("order", JobOrder)
def test_a_cursor_that_no_list_gave_out(uow: UnitOfWork, jobs: list[Job], order: JobOrder) -> None:
    newer = new_id("job")
    with uow.read() as repos:
        if order in (
            JobOrder.NEWEST,
            JobOrder.OLDEST,
        ):  # it lies among the ids, whether its job is there or not
            expected = 5 if order is JobOrder.NEWEST else 0
            assert len(repos.jobs.list(order=order, cursor=newer).items) == expected
            return
        with pytest.raises(InvalidInputError) as refused:
            repos.jobs.list(order=order, cursor=newer)
    assert refused.value.code == "invalid-cursor"


def test_changed_jobs_come_first(uow: UnitOfWork, jobs: list[Job]) -> None:
    with uow.write() as repos:
        before = repos.jobs.get(jobs[1].id).updated_at
        repos.jobs.label(jobs[1].id, note="a note is no change of the job")
        assert repos.jobs.get(jobs[1].id).updated_at == before
    assert sorted(pages(uow, JobOrder.CHANGED, 2)) == sorted(job.id for job in jobs)


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tags": ["ocr"]}, [0]),
        ({"tags": ["ocr", "customer-7"]}, [0]),
        ({"tags": ["ocr", "größe"]}, []),
        ({"tags": ["größe"]}, [1]),
        ({"tags": ["oc_"]}, []),
        ({"text": "OCR"}, [1, 0]),
        ({"text": "Größe"}, [1]),
        ({"text": "50%"}, [0]),
        ({"text": "%"}, [1, 0]),
        ({"text": "monday"}, [0]),
        ({"text": "übungS-B"}, [0]),
        ({"text": "ÜBUNGS"}, [0]),
        ({"text": "_"}, [4, 3, 2, 1, 0]),  # in every id
        ({"text": '", "'}, []),
        *(({"text": text}, []) for text in ("[", "]", '"', "\\", ",", "u00", "00f6")),
        ({"text": "GRO\u0308ß"}, [1]),
        ({"text": "arm", "states": [JobState.CANCELLED]}, [4]),
        ({"model_text": "_REC"}, [0]),
        ({"device_key": "x86"}, []),
        ({"state": JobState.CANCELLED}, [4]),
    ],
    ids=str,
)
def test_filters(uow: UnitOfWork, jobs: list[Job], filters: Any, expected: list[int]) -> None:
    with uow.read() as repos:
        shown = repos.jobs.list(**filters).items
        _, total = repos.overview.jobs(**filters)
    assert [job.id for job in shown] == [jobs[number].id for number in expected]
    assert total == len(expected)
