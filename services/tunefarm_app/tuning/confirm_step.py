"""The confirm step: measures the few best kernels of a task again, in turn, before the task's winner is named."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tunefarm_app.leases.device_wait import wait_for_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import best_latency_sec, engine_space, engine_task, record_rows
from tunefarm_app.tuning.commit import search_progress
from tunefarm_app.tuning.confirmation import (
    Confirmation,
    confirm_or_compile,
    due_confirmations,
    first_that_fits,
)
from tunefarm_app.tuning.round import check_device
from tunefarm_app.tuning.time_check import check_times
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask
from tunefarm_tuning.core.errors import (
    CancelledError,
    LeaseLostError,
    TransientError,
    TunefarmError,
    reason_of,
)
from tunefarm_tuning.search.confirmation import confirm_best
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The result of a confirmation; `failed` says why there is none."""

    task: TuningTask
    space: ConfigSpace | None
    outcomes: Sequence[TrialOutcome]
    failed: str | None


def run_confirm(context: StepContext) -> None:
    """Measure the best kernels of the most important due task again, record the result, and plan the next step.

    Confirmations are no trials: no budget by trials is spent on them, and no search is judged by them.

    Raises:
        DeviceLostError: If nothing could be measured; the step is tried again, on another device if there is one.
    """
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        rows = repos.jobs.tasks(job.id)
    device = context.lease.take_device(job.device_key)
    if device is None:
        wait_for_device(context, job)
        return
    began = time.monotonic()
    with context.services.uow.read() as repos:
        due = due_confirmations(context, repos, job, rows, device)
    chosen = first_that_fits(due, job)
    if chosen is None:  # another job has done it, or a device of another model was free
        with context.commit(device) as repos:
            confirm_or_compile(context, repos, context.job(repos), (), stop_reason=_stop_reason(job))
        return
    measured = _measure(context, job, rows[chosen.position], device, chosen)
    context.lease.check()
    check_device(context, device, measured.outcomes)
    check_times(context, job, device, measured.task, measured.space, measured.outcomes)
    _commit(context, device, rows, chosen, measured, began)


def _measure(
    context: StepContext, job: Job, row: JobTask, device: DeviceLease, chosen: Confirmation
) -> _Measured:
    structlog.contextvars.bind_contextvars(task=row.position, workload_key=row.workload_key)
    with context.services.uow.read() as repos:
        workload = repos.workloads.get(row.workload_key, row.toolchain)
        stored = repos.spaces.get(row.workload_key, target_key=job.target_key, toolchain=row.toolchain)
    task = engine_task(workload, Target.from_json(job.target), row.weight)
    assert row.space_key is not None
    outcomes: Sequence[TrialOutcome] = ()
    failed: str | None = None
    try:
        with context.engine.measuring(device.device, cancellation=context.cancellation) as option:
            outcomes = confirm_best(task, chosen.configs, option, space_key=row.space_key)
    except (TransientError, LeaseLostError, CancelledError):
        raise
    except Exception as error:
        context.lease.check()
        # The search's results must not be lost because their confirmation failed.
        expected = isinstance(error, TunefarmError)
        failed = reason_of(error)
        log.warning("best not confirmed", position=row.position, error=failed, exc_info=not expected)
    return _Measured(task=task, space=engine_space(stored), outcomes=outcomes, failed=failed)


def _commit(
    context: StepContext,
    device: DeviceLease,
    rows: Sequence[JobTask],
    chosen: Confirmation,
    measured: _Measured,
    began: float,
) -> None:
    with context.commit(device) as repos:
        job = context.job(repos)
        before = rows[chosen.position]
        row = _record(context, repos, job, before, device, measured)
        rows = [row if other.position == row.position else other for other in rows]
        job = repos.jobs.update(
            job.id,
            tuned_sec=job.tuned_sec + (time.monotonic() - began),
            best_latency_sec=best_latency_sec(rows),
            progress=search_progress("confirming", row, device),
        )
        repos.events.add(job.id, "confirmed", _confirmed_event(job, before, row, measured))
        due = due_confirmations(context, repos, job, rows, device)
        confirm_or_compile(context, repos, job, due, stop_reason=_stop_reason(job))
    log.info(
        "best confirmed",
        task=row.position,
        best_cost_before_sec=before.best_cost_sec,
        best_cost_sec=row.best_cost_sec,
        seconds=round(time.monotonic() - began, 3),
    )


def _record(
    context: StepContext,
    repos: Repositories,
    job: Job,
    row: JobTask,
    device: DeviceLease,
    measured: _Measured,
) -> JobTask:
    """Store the measurements; return the task with the cost of the record that is now its best."""
    toolchain = context.engine.toolchain
    repos.records.add_many(
        record_rows(measured.outcomes, measured.task, job, device.device, toolchain=toolchain)
    )
    best = repos.records.best(
        [row.workload_key],
        target_key=job.target_key,
        device_model=device.device.device_model,
        toolchain=toolchain,
    ).get(row.workload_key)
    return repos.jobs.update_task(
        job.id,
        row.position,
        confirmations=row.confirmations + 1,
        best_cost_sec=best.cost_sec if best is not None else None,
    )


def _confirmed_event(job: Job, before: JobTask, row: JobTask, measured: _Measured) -> dict[str, object]:
    return {
        "position": row.position,
        "task": row.name,
        "confirmations": row.confirmations,
        "outcomes": dict(Counter(outcome.outcome.value for outcome in measured.outcomes)),
        "failed": measured.failed,
        "best_cost_before_sec": before.best_cost_sec,
        "best_cost_sec": row.best_cost_sec,
        "best_latency_sec": job.best_latency_sec,
        "tuned_sec": job.tuned_sec,
    }


def _stop_reason(job: Job) -> str:
    return job.stop_reason or "exhausted"
