"""The confirm step: the few best kernels of one task are measured again, side by side, before its winner is named."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tunefarm_app.leases.device_wait import wait_for_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import engine_task, record_rows
from tunefarm_app.tuning.device_trouble import check_measured
from tunefarm_app.tuning.progress import best_latency_sec
from tunefarm_app.tuning.re_measurement import Doubt, confirm_or_compile, find_doubts, first_that_fits
from tunefarm_db.values import DeviceLease, Job, JobTask
from tunefarm_tuning.core.errors import (
    CancelledError,
    LeaseLostError,
    TransientError,
    TunefarmError,
    reason_of,
)
from tunefarm_tuning.search.confirm import confirm_best
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TuningTask

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Confirmation:
    task: TuningTask
    outcomes: Sequence[TrialOutcome]
    num_cores: int
    failed: str | None


def run_confirm(context: StepContext) -> None:
    """Measure again the best of the task that matters most among those in doubt, record it, and plan what follows.

    Confirmations are no trials: no budget by trials is spent on them, and no search is judged by them.

    Raises:
        DeviceLostError: If nothing could be measured; the step is tried again, elsewhere if there is an elsewhere.
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
        doubts = find_doubts(context, repos, job, rows, device)
    doubt = first_that_fits(doubts, job)
    if doubt is None:  # another job settled it, or another kind of device was free
        with context.commit(device) as repos:
            confirm_or_compile(context, repos, context.job(repos), (), stop_reason=_stop_reason(job))
        return
    found = _measure(context, job, rows[doubt.position], device, doubt)
    context.lease.check()
    check_measured(context, device, found.outcomes)
    _commit(context, device, rows, doubt, found, began)


def _measure(
    context: StepContext, job: Job, row: JobTask, device: DeviceLease, doubt: Doubt
) -> _Confirmation:
    structlog.contextvars.bind_contextvars(task=row.position, workload_key=row.workload_key)
    with context.services.uow.read() as repos:
        workload = repos.workloads.get(row.workload_key, row.toolchain)
    task = engine_task(workload, Target.from_json(job.target), row.weight)
    assert row.space_key is not None
    outcomes: Sequence[TrialOutcome] = ()
    num_cores = 1
    failed: str | None = None
    try:
        with context.engine.measuring(device.device, cancellation=context.cancellation) as option:
            num_cores = option.runner.device.num_cores
            outcomes = confirm_best(task, doubt.configs, option, space_key=row.space_key)
    except (TransientError, LeaseLostError, CancelledError):
        raise
    except Exception as error:
        context.lease.check()
        # What was found must not be lost to a check of it.
        expected = isinstance(error, TunefarmError)
        failed = reason_of(error)
        log.warning("best not confirmed", position=row.position, error=failed, exc_info=not expected)
    return _Confirmation(task=task, outcomes=outcomes, num_cores=num_cores, failed=failed)


def _commit(
    context: StepContext,
    device: DeviceLease,
    rows: Sequence[JobTask],
    doubt: Doubt,
    found: _Confirmation,
    began: float,
) -> None:
    with context.commit(device) as repos:
        job = context.job(repos)
        before = rows[doubt.position]
        repos.records.add_many(
            record_rows(
                [outcome for outcome in found.outcomes if outcome.is_trial],
                found.task,
                job,
                device.device,
                num_cores=found.num_cores,
                toolchain=context.engine.toolchain,
            )
        )
        best = repos.records.best(
            [before.workload_key],
            target_key=job.target_key,
            device_model=device.device.device_model,
            toolchain=context.engine.toolchain,
        ).get(before.workload_key)
        row = repos.jobs.update_task(
            job.id,
            before.position,
            confirmations=before.confirmations + 1,
            best_cost_sec=best.cost_sec if best is not None else None,
        )
        rows = [row if other.position == row.position else other for other in rows]
        job = repos.jobs.update(
            job.id,
            tuned_sec=job.tuned_sec + (time.monotonic() - began),
            best_latency_sec=best_latency_sec(rows),
            progress={
                "phase": "confirming",
                "task": row.name,
                "position": row.position,
                "device": device.device.name,
            },
        )
        repos.events.add(
            job.id,
            "confirmed",
            {
                "position": row.position,
                "task": row.name,
                "confirmations": row.confirmations,
                "outcomes": dict(Counter(outcome.outcome.value for outcome in found.outcomes)),
                "failed": found.failed,
                "best_cost_before_sec": before.best_cost_sec,
                "best_cost_sec": row.best_cost_sec,
                "best_latency_sec": job.best_latency_sec,
                "tuned_sec": job.tuned_sec,
            },
        )
        confirm_or_compile(
            context,
            repos,
            job,
            find_doubts(context, repos, job, rows, device),
            stop_reason=_stop_reason(job),
        )
    log.info(
        "best confirmed",
        task=row.position,
        best_cost_before_sec=before.best_cost_sec,
        best_cost_sec=row.best_cost_sec,
        seconds=round(time.monotonic() - began, 3),
    )


def _stop_reason(job: Job) -> str:
    return job.stop_reason or "exhausted"
