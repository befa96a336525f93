"""Sweeps and their cells."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import NewSweepCell, Sweep
from tunefarm_tuning.core.errors import ConflictError, NotFoundError


def add(uow: UnitOfWork, *jobs: Any, key: str | None = None) -> Sweep:
    with uow.write() as repos:
        sweep = repos.sweeps.add(
            budget={"job_sec": 60.0}, tags=["a"], note="n", idempotency_key=key, request_digest="d"
        )
        cells = [
            NewSweepCell(
                model_id=job.model_id, model_name="net", device_key="cpu", precision="as-model", job_id=job.id
            )
            for job in jobs
        ]
        refused = NewSweepCell(
            model_id=None, model_name="bad.onnx", device_key="", precision="", error={"code": "c"}
        )
        repos.sweeps.add_cells(sweep.id, [*cells, refused])
        return sweep


def test_a_sweep_keeps_its_cells_in_order(uow: UnitOfWork, seed: Any) -> None:
    jobs = [seed.job(seed=number) for number in range(3)]
    first, second = add(uow, *jobs[:2]), add(uow, jobs[2])
    with uow.read() as repos:
        assert repos.sweeps.get(first.id) == first
        cells = repos.sweeps.cells([first.id, second.id])
        assert [(cell.position, cell.job_id) for cell in cells[first.id]] == [
            (0, jobs[0].id),
            (1, jobs[1].id),
            (2, None),
        ]
        assert cells[second.id][1].error == {"code": "c"}
        assert repos.sweeps.jobs([first.id]) == {job.id: job for job in jobs[:2]}
        assert repos.sweeps.cells([]) == repos.sweeps.jobs([]) == {}
        assert repos.sweeps.of_jobs([jobs[0].id, jobs[1].id]) == (first.id,)
        assert repos.sweeps.of_jobs([job.id for job in jobs]) == (first.id, second.id)
        assert repos.sweeps.of_jobs([]) == ()
        page = repos.sweeps.list(limit=1)
        assert page.items == (second,)
        assert repos.sweeps.list(cursor=page.next_cursor).items == (first,)
        with pytest.raises(NotFoundError) as missing:
            repos.sweeps.get("swp_none")
    assert missing.value.code == "sweep-not-found"


def test_a_key_and_a_job_are_of_one_sweep(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    sweep = add(uow, job, key="k")
    with uow.read() as repos:
        assert repos.sweeps.find_by_idempotency_key("k") == sweep
        assert repos.sweeps.find_by_idempotency_key("l") is None
    with pytest.raises(ConflictError):
        add(uow, seed.job(seed=9), key="k")
    with pytest.raises(ConflictError):
        add(uow, job)


def test_the_first_cancellation_counts(uow: UnitOfWork, seed: Any) -> None:
    sweep = add(uow, seed.job())
    times = []
    for _ in range(2):
        with uow.write() as repos:
            repos.sweeps.set_cancelled(sweep.id)
            times.append(repos.sweeps.get(sweep.id).cancelled_at)
    assert times[0] is not None
    assert times[0] == times[1]
