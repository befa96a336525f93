"""The device whose peak a job's kernels are compared with."""

from __future__ import annotations

from app_farm import Farm

from tunefarm_app.devices.commands import remove_device
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.records.rooflines import job_peak, job_rooflines
from tunefarm_app.report.assemble import job_report
from tunefarm_db.values import Job
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.measure.roofline import Roofline


def peak_of(farm: Farm, job: Job) -> Peak | None:
    with farm.services.uow.read() as repos:
        return job_peak(repos, job)


def rooflines(farm: Farm, job: Job) -> dict[int, Roofline]:
    with farm.services.uow.read() as repos:
        return job_rooflines(repos, job, repos.jobs.tasks(job.id), repos.models.tasks(job.model_id))


def tuned(farm: Farm, **scenario: object) -> Job:
    job = farm.submit(farm.ready_model(Scenario(tasks=2, **scenario)), trials=16, tuner="random")  # type: ignore[arg-type]
    farm.run()
    return farm.job(job.id)


def test_all_cores_of_its_device_count(farm: Farm) -> None:
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=10e9)
    job = tuned(farm)
    with farm.services.uow.read() as repos:
        tasks = repos.jobs.tasks(job.id)
    by_position = rooflines(farm, job)
    assert set(by_position) == {0, 1}
    for task in tasks:
        assert task.best_cost_sec is not None
        assert by_position[task.position].flops_per_sec == 1e6 * (task.position + 1) / task.best_cost_sec
        assert by_position[task.position].peak_flops_per_sec == 20e9
        assert by_position[task.position].share_of_bound is not None


def test_the_peak_of_a_report_holds_whatever_is_measured_later(farm: Farm) -> None:
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=10e9)
    job = tuned(farm)
    farm.note_peak(device, flops_per_sec=14e9)
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
        tasks, model_tasks = repos.jobs.tasks(job.id), repos.models.tasks(job.model_id)
        assert artifact is not None
        shown = job_rooflines(repos, job, tasks, model_tasks, artifact.report)
        unreadable = job_rooflines(repos, job, tasks, model_tasks, {"farm": {"peak": {"threads": "?"}}})
    reported = job_report(farm.services, job.id).peak
    assert reported is not None
    assert reported.flops_per_sec["float32"].all_cores == 20e9
    assert {each.peak_flops_per_sec for each in shown.values()} == {20e9}
    assert {each.peak_flops_per_sec for each in unreadable.values()} == {28e9}


def test_without_a_peak_there_is_a_rate_alone(farm: Farm) -> None:
    farm.add_device()
    job = tuned(farm)
    assert peak_of(farm, job) is None
    assert {bound.share_of_peak for bound in rooflines(farm, job).values()} == {None}


def test_a_kernel_without_a_time_has_none(farm: Farm) -> None:
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=10e9)
    job = farm.submit(farm.ready_model(Scenario(tasks=2)), tuner="random")
    farm.run(steps=1)
    assert rooflines(farm, job) == {}
    peak = peak_of(farm, job)
    assert peak is not None, "the pool has one kind of device, and it will be measured on that"
    assert peak.flops_on(2, "float32") == 20e9


def test_devices_of_a_pool_are_alike_so_the_best_figures_of_them_all_count(farm: Farm) -> None:
    first = farm.add_device("a")
    farm.note_peak(first, flops_per_sec=10e9, bytes_per_sec=5e9)
    job = tuned(farm)
    remove_device(farm.services, first.id)
    second = farm.add_device("b")
    farm.note_peak(second, flops_per_sec=8e9, bytes_per_sec=6e9)
    peak = peak_of(farm, job)
    assert peak is not None
    assert (peak.flops_on(1, "float32"), peak.memory_bandwidth_on(1)) == (10e9, 6e9)


def test_a_device_of_another_model_says_nothing(farm: Farm) -> None:
    other = farm.add_device("a", device_model="another-cpu")
    farm.note_peak(other, flops_per_sec=99e9)
    remove_device(farm.services, other.id)
    device = farm.add_device("b")
    job = tuned(farm)
    assert peak_of(farm, job) is None
    farm.note_peak(device, flops_per_sec=10e9)
    peak = peak_of(farm, job)
    assert peak is not None
    assert peak.flops_on(1, "float32") == 10e9
    waiting = farm.submit(farm.ready_model(Scenario(tasks=1, seed=9)), tuner="random")
    assert peak_of(farm, waiting) is None, "which of the two it will be measured on is not known yet"


def test_what_the_loops_of_a_kernel_touch_counts_where_it_is_known(farm: Farm) -> None:
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=10e9)
    job = tuned(farm, nests=True, extent=16)
    for position, bound in rooflines(farm, job).items():
        # Its arguments are said to be 32 bytes, which is less than what a product of matrices touches.
        assert bound.intensity == 1e6 * (position + 1) / 32
    with farm.services.uow.read() as repos:
        tasks = repos.jobs.tasks(job.id)
        known = repos.spaces.computations(
            [task.workload_key for task in tasks], target_key=job.target_key, toolchain=tasks[0].toolchain
        )
    assert len(known) == 2
