"""Rooflines: how close a job's kernels are to the peak of its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tunefarm_app.devices.peak import certain_peak, known_peak
from tunefarm_app.records.farm_facts import FARM, peak_in
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, DevicePeak, Job, JobTask, Json, ModelTask
from tunefarm_text.quantities import flops_per_sec
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.measure.roofline import DISPROVED, Roofline, kernel_bytes, kernel_dtype, roofline
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
    """Return the best peak among a device and the devices of the same model in its pool that are neither held nor removed."""
    return _best_of(repos.peaks.of_pool(device.device_key, trusted=True), device.device_model)


def _best_of(rows: Iterable[DevicePeak], device_model: str) -> Peak | None:
    best: Peak | None = None
    for row in rows:
        peak = known_peak(row)
        if row.device_model == device_model and peak is not None:
            best = peak if best is None else best.merged(peak)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedKernel:
    """A kernel and its time, to be held against a peak.

    Attributes:
        flops: Operations per call.
        cost_sec: Seconds per call; None if it was not timed.
        threads: The threads that it ran on; None is all cores, as in a search.
    """

    flops: float
    cost_sec: float | None
    args: Sequence[Mapping[str, object]]
    computation: Computation | None = None
    threads: int | None = None


def trusted_peak(peak: Peak | None, kernels: Iterable[TimedKernel]) -> Peak | None:
    """Return a peak without figures that are doubtful or that a kernel exceeds: the device was busy when they were measured.

    No other kernel is then held against them either, and `Peak.missing` says why.
    """
    if peak is None:
        return None
    if peak.doubtful:
        peak = certain_peak(peak)
    reached: dict[str, float] = {}
    for kernel in kernels:
        dtype = kernel_dtype(kernel.args)
        most = peak.flops_on(kernel.threads or peak.threads, dtype) if dtype is not None else None
        if dtype is None or most is None or not kernel.cost_sec or kernel.cost_sec < 0:
            continue
        rate = kernel.flops / kernel.cost_sec
        if rate > DISPROVED * most:
            reached[dtype] = max(reached.get(dtype, 0.0), rate)
    if not reached:
        return peak
    reasons = [
        f"{dtype}: a kernel reached {flops_per_sec(rate, 1.0)}, more than was measured: the device was busy, and is measured again"
        for dtype, rate in sorted(reached.items())
    ]
    return replace(
        peak,
        flops_per_sec={dtype: rate for dtype, rate in peak.flops_per_sec.items() if dtype not in reached},
        missing="; ".join([*filter(None, [peak.missing]), *reasons]),
    )


def job_kernels(
    repos: Repositories, job: Job, tasks: Sequence[JobTask], model_tasks: Iterable[ModelTask]
) -> dict[int, TimedKernel]:
    """Return the best kernel of each task that the search found, by position."""
    known = {(task.workload_key, task.toolchain): task for task in model_tasks}
    computations = task_computations(repos, job.target_key, tasks)
    return {
        task.position: TimedKernel(
            flops=facts.flops,
            cost_sec=task.best_cost_sec,
            args=facts.args,
            computation=computations.get(task.workload_key),
        )
        for task in tasks
        if (facts := known.get((task.workload_key, task.toolchain))) is not None
    }


def job_rooflines(
    repos: Repositories,
    job: Job,
    tasks: Sequence[JobTask],
    model_tasks: Iterable[ModelTask],
    report: Mapping[str, Any] | None = None,
) -> dict[int, Roofline]:
    """Return the roofline of each kernel's best time, by position; kernels without a time or operations are left out.

    Once the job has an artifact, its `report` says which peak holds: later measurements of the device do not change it.
    """
    kernels = job_kernels(repos, job, tasks, model_tasks)
    peak = trusted_peak(_reported_peak(report) or job_peak(repos, job), kernels.values())
    rooflines = {position: kernel_roofline(kernel, peak) for position, kernel in kernels.items()}
    return {position: stands for position, stands in rooflines.items() if stands is not None}


def _reported_peak(report: Mapping[str, Any] | None) -> Peak | None:
    try:
        return peak_in((report or {}).get(FARM) or {})
    except (KeyError, TypeError, ValueError, AttributeError):  # written by another release
        return None


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


def kernel_roofline(kernel: TimedKernel, peak: Peak | None) -> Roofline | None:
    """Return the roofline of a kernel; None if it was not timed, or has no operations."""
    return roofline(
        kernel.flops,
        kernel.cost_sec,
        peak=peak,
        threads=kernel.threads or (1 if peak is None else peak.threads),
        dtype=kernel_dtype(kernel.args),
        moved_bytes=kernel_bytes(kernel.args, kernel.computation),
    )


def _computation(data: Json) -> Computation | None:
    try:
        return Computation.from_json(data)
    except ValueError:  # written by another release
        return None
