"""Jobs side by side."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.comparison import ComparedKernel, JobComparison, compare_jobs
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError


def compare(farm, *job_ids: str) -> JobComparison:
    with farm.services.uow.read() as repos:
        return compare_jobs(repos, job_ids)


@pytest.fixture
def jobs(farm) -> list[str]:
    """Two finished jobs of a network of three kernels, and one of a network of two."""
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=3))
    ids = [farm.submit(model, trials=trials).id for trials in (24, 96)]
    ids.append(farm.submit(farm.ready_model(Scenario(tasks=2)), trials=16).id)
    farm.run()
    return ids


def test_the_results_the_curves_and_the_kernels(farm, jobs: list[str]) -> None:
    comparison = compare(farm, *reversed(jobs))
    assert [job.id for job in comparison.jobs] == list(reversed(jobs))
    assert [job.trials for job in comparison.jobs] == [16, 96, 24]
    for job in comparison.jobs:
        assert (job.is_measured, job.latency_sec) == (False, farm.job(job.id).best_latency_sec), (
            "a simulation times no network"
        )
        assert job.artifact_bytes
        assert [sec for sec, _ in job.curve] == sorted(sec for sec, _ in job.curve)
        assert job.curve[-1][1] == farm.job(job.id).best_latency_sec
    with farm.services.uow.read() as repos:
        keys = {
            job_id: {task.workload_key: task for task in repos.jobs.tasks(job_id)}
            for job_id in reversed(jobs)
        }
    assert {kernel.workload_key for kernel in comparison.kernels} == {
        key for by_key in keys.values() for key in by_key
    }
    for kernel in comparison.kernels:
        tasks = [by_key.get(kernel.workload_key) for by_key in keys.values()]
        assert kernel.best_sec == [task and task.best_cost_sec for task in tasks]
        known = [sec for sec in kernel.best_sec if sec is not None]
        if kernel.best is not None:
            assert known.count(min(known)) == 1
            assert kernel.best_sec[kernel.best] == min(known)
        assert (kernel.apart is None) == (len(known) < 2)
    ranks = [(kernel.is_shared, kernel.apart or 0.0) for kernel in comparison.kernels]
    assert ranks == sorted(ranks, reverse=True)


def test_no_job_has_the_faster_kernel_where_two_share_a_record() -> None:
    kernel = ComparedKernel(
        workload_key="w", name="k", weights=[1, 8, 1], best_sec=[3e-6, 3e-6, 4e-6], trials=[0, 2, 2]
    )
    assert (kernel.best, kernel.apart) == (None, pytest.approx(21e-6))
    assert kernel.model_copy(update={"best_sec": [3e-6, 2e-6, None]}).best == 1


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_can_be_compared(farm, count: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        compare(farm, *(f"job_{number}" for number in range(count)))
    assert caught.value.code == "bad-comparison"
    assert caught.value.message.endswith(f"this names {count} job{'' if count == 1 else 's'}")


def test_unknown_and_repeated_jobs_are_refused(farm, jobs: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="a job is named twice"):
        compare(farm, jobs[0], jobs[0])
    with pytest.raises(NotFoundError):
        compare(farm, jobs[0], "job_none")


@pytest.mark.exhaustive
def test_a_job_without_a_search_shows_the_times_in_its_artifact(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    searched, compiled = farm.submit(model, trials=16), farm.submit(model, search=False)
    farm.run()
    with farm.services.uow.write() as repos:
        key = repos.jobs.tasks(compiled.id)[0].workload_key
        artifact = repos.artifacts.for_job(compiled.id)
        assert artifact is not None
        assert repos.jobs.tasks(compiled.id)[0].best_cost_sec is None
        report = {
            **artifact.report,
            "coverage": {"tasks": 2, "covered": 1, "hits": [{"workload_key": key}], "misses": []},
            "kernels": [{"workload_key": key, "untuned_sec": [2e-3] * 3, "tuned_sec": [1e-3] * 3}],
        }
        repos.artifacts.set_report(compiled.id, report)
    kernel = next(k for k in compare(farm, searched.id, compiled.id).kernels if k.workload_key == key)
    assert kernel.best_sec[1] == 1e-3
    assert kernel.trials[1] == 0
    with farm.services.uow.engine.begin() as connection:
        earlier = text("UPDATE job_tasks SET best_cost_sec = 5e-3 WHERE job_id = :job_id")
        connection.execute(earlier, {"job_id": compiled.id})
    kernel = next(k for k in compare(farm, searched.id, compiled.id).kernels if k.workload_key == key)
    assert kernel.best_sec[1] == 1e-3, "an earlier job's record was taken for the artifact's time"
