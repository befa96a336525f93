"""The tune step: one round of one task of a job, on one leased device: plan, time the network, prefetch, round, commit."""

from __future__ import annotations

import time

from tunefarm_app.leases.device_wait import wait_for_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.tuning.commit import commit_round, commit_without_round
from tunefarm_app.tuning.network_timing import time_network_if_due
from tunefarm_app.tuning.plan import choose_round
from tunefarm_app.tuning.prefetch import PrefetchedRound, take_prefetched
from tunefarm_app.tuning.round import measure_round
from tunefarm_db.values import Job, JobTask
from tunefarm_tuning.core.errors import ConflictError


def run_tune(context: StepContext) -> None:
    """Measure one round, record it, and plan the next step: another round, a confirmation, or the compile.

    Raises:
        DeviceLostError: If nothing could be measured, and no candidate was being measured; the step is tried again,
            on another device if there is one.
        ConflictError: ``toolchain-changed`` if the worker's compiler is not the one that the tasks were made with.
    """
    prefetched = take_prefetched(context)
    try:
        _run(context, prefetched)
    finally:
        if prefetched is not None:
            prefetched.discard()


def _run(context: StepContext, prefetched: PrefetchedRound | None) -> None:
    job, rows = _read(context)
    device = context.lease.take_device(job.device_key)
    if device is None:
        wait_for_device(context, job)
        return
    choice = choose_round(context, job, rows, device, prefetched.in_flight if prefetched else None)
    if choice.round is None:
        commit_without_round(context, device, choice)
        return
    time_network_if_due(context, job, device)
    began = time.monotonic()
    measured = measure_round(context, job, choice, device, prefetched, began=began)  # prefetches the next one
    if context.prefetch is not None:
        context.prefetch.settle()
    commit_round(context, device, choice, measured)


def _read(context: StepContext) -> tuple[Job, tuple[JobTask, ...]]:
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        rows = repos.jobs.tasks(job.id)
    if any(row.toolchain != context.engine.toolchain for row in rows):
        raise ConflictError(
            "the workers' compiler changed during the job: submit it again",
            code="toolchain-changed",
            now=context.engine.toolchain,
        )
    return job, rows
