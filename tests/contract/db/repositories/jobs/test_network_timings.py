"""Networks of a search, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork

ARTIFACT, INPUTS = "d" * 64, "e" * 64
TIMED: dict[str, Any] = {
    "latency_sec": 0.02,
    "low_sec": 0.019,
    "high_sec": 0.021,
    "quiet": True,
    "device_id": "dev_1",
    "device": "dev-1",
    "tuned_sec": 61.0,
    "spent_sec": 2.0,
}


@pytest.fixture
def job_id(uow: UnitOfWork, seed: Any) -> str:
    job_id: str = seed.job(seed.model()).id
    with uow.write() as repos:
        for sha256 in (ARTIFACT, INPUTS):
            repos.blobs.add(sha256, size_bytes=100, media_type="application/octet-stream")
    return job_id


def add(uow: UnitOfWork, job_id: str, number: int, **changes: Any) -> None:
    columns = {
        "sha256": ARTIFACT,
        "inputs_sha256": INPUTS,
        "size_bytes": 100,
        "name": "a.tunefarm",
        "tasks": 5,
        "covered": number,
        "began_sec": 30.0 * number,
        "costs": {"0": 0.001},
        "expected_sec": 1.5,
        "error": None,
    }
    with uow.write() as repos:
        repos.network_timings.add(job_id, number, **{**columns, **changes})


def test_the_newest_waits_alone(uow: UnitOfWork, job_id: str) -> None:
    add(uow, job_id, 0)
    add(uow, job_id, 0, covered=4)  # a late write of the same step
    with uow.read() as repos:
        (first,) = repos.network_timings.of(job_id)
    assert (first.waits, first.covered, first.costs, first.tries) == (True, 0, {"0": 0.001}, 0)
    add(uow, job_id, 1)
    with uow.write() as repos:
        (second,) = repos.network_timings.of(job_id)
        assert second.number == 1
        repos.network_timings.note(job_id, 1, **TIMED)
        repos.network_timings.note(job_id, 1, **{**TIMED, "latency_sec": 9.0})
    add(uow, job_id, 2, error={"code": "runs-parts", "message": "parts"})
    with uow.read() as repos:
        timed, failed = repos.network_timings.of(job_id)
        assert repos.network_timings.of_jobs([job_id]) == {job_id: [timed, failed]}
        assert repos.network_timings.of_jobs([]) == {}
    assert (timed.latency_sec, timed.low_sec, timed.high_sec, timed.quiet) == (0.02, 0.019, 0.021, True)
    assert (timed.waits, timed.timed_at is not None) == (False, True)
    assert (failed.waits, failed.error) == (False, {"code": "runs-parts", "message": "parts"})


def test_one_of_many_begins(uow: UnitOfWork, job_id: str) -> None:
    add(uow, job_id, 0)

    def begins(_: int) -> bool:
        with uow.write() as repos:
            return repos.network_timings.begin(job_id, 0, most_tries=2, within_sec=60.0)

    with ThreadPoolExecutor(4) as executor:
        assert sum(executor.map(begins, range(8))) == 1
    with uow.write() as repos:
        assert repos.network_timings.begin(job_id, 0, most_tries=2, within_sec=0.0) is False
        repos._connection.exec_driver_sql("UPDATE network_timings SET not_before = 0")
        assert repos.network_timings.begin(job_id, 0, most_tries=2, within_sec=0.0) is True
        assert repos.network_timings.begin(job_id, 0, most_tries=2, within_sec=0.0) is False, "twice at most"
        repos.network_timings.fail(job_id, 0, {"code": "run-failed"}, spent_sec=3.0)
        (failed,) = repos.network_timings.of(job_id)
    assert (failed.tries, failed.spent_sec, failed.error) == (2, 3.0, {"code": "run-failed"})


@pytest.mark.parametrize("sha256", [ARTIFACT, INPUTS])
def test_files_are_kept_while_the_network_waits_and_its_job_is_open(
    uow: UnitOfWork, job_id: str, sha256: str
) -> None:
    add(uow, job_id, 0)
    with uow.write() as repos:
        assert repos.blobs.is_referenced(sha256)
        assert not repos.blobs.delete(sha256)
        repos.jobs.move(job_id, JobState.CANCELLED)
        assert not repos.blobs.is_referenced(sha256)
        assert repos.blobs.delete(sha256)


def test_a_purge_takes_what_a_device_timed(uow: UnitOfWork, job_id: str, seed: Any) -> None:
    add(uow, job_id, 0)
    with uow.write() as repos:
        repos.network_timings.note(job_id, 0, **TIMED)
    add(uow, job_id, 1)
    numbers: dict[str, Any] = {"speedups": {}, "over_untuned": None, "over_runtime": None}
    with uow.write() as repos:
        repos.network_timings.note(job_id, 1, **{**TIMED, "latency_sec": 0.001, "device_id": "dev_2"})
        repos.jobs.set_numbers(job_id, network_latency_sec=0.001, **numbers)
        assert repos.network_timings.purge_device("dev_3") == ()
        assert repos.network_timings.purge_device("dev_2") == (job_id,)
        assert repos.jobs.get(job_id).network_latency_sec == 0.02
        assert repos.network_timings.purge_device("dev_1") == (job_id,)
        assert repos.jobs.get(job_id).network_latency_sec is None
