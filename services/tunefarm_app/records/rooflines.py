"""Rooflines: how close a job's kernels are to the peak of its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tunefarm_app.devices.peak import known_peak
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, DevicePeak, Job, JobTask, Json, ModelTask
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.measure.roofline import Roofline, kernel_bytes, kernel_dtype, roofline
from tunefarm_tuning.workload.computation import Computation


def job_peak(repos: Repositories, job: Job) -> Peak | None:
    """Return the peak of a job's devices; None if it was not measured.

    Devices of a pool are alike, so the best figures of all of them hold for each. Peaks of other device models that the
    pool once had do not count.
    """
    rows = repos.peaks.of_pool(job.device_key)
    newest = repos.records.query(RecordFilter(job_id=job.id), limit=1).items
    models = {record.device_model for record in newest} or {row.device_model for row in rows}
    return _best_of(rows, models.pop()) if len(models) == 1 else None


def device_model_peak(repos: Repositories, device: Device) -> Peak | None:
    """Return the best peak among a device and the devices of the same model in its pool."""
    return _best_of(repos.peaks.of_pool(device.device_key), device.device_model)


def _best_of(rows: Iterable[DevicePeak], device_model: str) -> Peak | None:
    best: Peak | None = None
    for row in rows:
        peak = known_peak(row)
        if row.device_model == device_model and peak is not None:
            best = peak if best is None else best.merged(peak)
    return best


def job_rooflines(
    repos: Repositories, job: Job, tasks: Sequence[JobTask], model_tasks: Iterable[ModelTask]
) -> dict[int, Roofline]:
    """Return the roofline of each kernel's best time, by position; kernels without a time or operations are left out."""
    peak = job_peak(repos, job)
    known = {(task.workload_key, task.toolchain): task for task in model_tasks}
    computations = task_computations(repos, job.target_key, tasks)
    rooflines = {}
    for task in tasks:
        facts = known.get((task.workload_key, task.toolchain))
        if facts is None:
            continue
        stands = kernel_roofline(
            facts.flops, task.best_cost_sec, facts.args, computations.get(task.workload_key), peak
        )
        if stands is not None:
            rooflines[task.position] = stands
    return rooflines


def task_computations(
    repos: Repositories, target_key: str, tasks: Sequence[JobTask]
) -> dict[str, Computation]:
    """Return the known computations of the tasks, by workload key."""
    if not tasks:
        return {}
    rows = repos.spaces.computations(
        [task.workload_key for task in tasks], target_key=target_key, toolchain=tasks[0].toolchain
    )
    computations = {}
    for key, row in rows.items():
        computation = _computation(row)
        if computation is not None:
            computations[key] = computation
    return computations


def kernel_roofline(
    flops: float,
    cost_sec: float | None,
    args: Sequence[Mapping[str, object]],
    computation: Computation | None,
    peak: Peak | None,
    threads: int | None = None,
) -> Roofline | None:
    """Return the roofline of a kernel that ran on `threads` threads; by default on all cores, as in a search."""
    return roofline(
        flops,
        cost_sec,
        peak=peak,
        threads=threads or (1 if peak is None else peak.threads),
        dtype=kernel_dtype(args),
        moved_bytes=kernel_bytes(args, computation),
    )


def _computation(data: Json) -> Computation | None:
    try:
        return Computation.from_json(data)
    except ValueError:  # written by another release
        return None
