"""The tune step: one round of one task of a job, on one leased device."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import structlog

from tunefarm_app.device_trouble import check_measured
from tunefarm_app.device_turns import wait_for_device
from tunefarm_app.doubts import confirm_or_compile, find_doubts
from tunefarm_app.step_context import StepContext
from tunefarm_app.task_rows import pipeline_of, record_rows, space_row
from tunefarm_app.tune_progress import TaskRow, after_round, best_latency_sec, scheduler_state
from tunefarm_app.tune_round import Round, measure_round
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask, NewTrial, StepKind
from tunefarm_tuning.budget import Budget
from tunefarm_tuning.contenders import without_confirming
from tunefarm_tuning.errors import ConflictError
from tunefarm_tuning.measure import Outcome
from tunefarm_tuning.target import Target
from tunefarm_tuning.task_scheduler import TaskScheduler

log = structlog.stdlib.get_logger(__name__)


def run_tune(context: StepContext) -> None:
    """Measure one round, record it, and plan what follows: another round, or the compiler.

    Raises:
        DeviceLostError: If nothing could be measured; the step is tried again, elsewhere if there is an elsewhere.
        ConflictError: ``toolchain-changed`` if the worker's compiler is not the one that the tasks were made with.
    """
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        rows = repos.jobs.tasks(job.id)
    if any(row.toolchain != context.engine.toolchain for row in rows):
        raise ConflictError(
            "the workers' compiler was changed while this job ran: submit it again",
            code="toolchain-changed",
            now=context.engine.toolchain,
        )
    device = context.lease.take_device(job.device_key)
    if device is None:
        wait_for_device(context, job)
        return
    began = time.monotonic()
    tasks = _with_known_costs(context, job, rows, device)
    scheduler = TaskScheduler()
    states = [scheduler_state(task) for task in tasks]
    confirming_sec = _confirming_sec(context, job, rows, device)
    search = without_confirming(Budget.from_json(job.budget), confirming_sec)
    position = scheduler.next(states)
    gain_per_min = scheduler.gain_per_min(states)
    if position is None or _budget_spent(search, job, gain_per_min):
        with context.commit(device) as repos:
            job = context.job(repos)
            if position is None:
                _end_search(context, repos, job, device, "exhausted")
            else:  # the budget may have been changed just now
                _go_on(context, repos, job, device, confirming_sec, gain_per_min)
        return
    size = scheduler.round_size(
        states,
        position,
        int(job.options.get("round_size", 8)),
        search,
        trials=job.trials,
        wall_sec=job.tuned_sec,
    )
    found = measure_round(
        context, job, rows[position], device, size, began, best_sec=tasks[position].best_sec
    )
    context.lease.check()
    check_measured(context, device, found.outcomes)
    _commit(context, confirming_sec, device, tasks, found, began)


def _with_known_costs(
    context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease
) -> list[TaskRow]:
    """Return the tasks with their operations, and with the best that is on record from whatever job."""
    toolchain = context.engine.toolchain
    with context.services.uow.read() as repos:
        pipeline = pipeline_of(Target.from_json(job.target))
        flops = {
            task.workload_key: task.flops
            for task in repos.models.tasks(job.model_id, pipeline=pipeline, toolchain=toolchain)
        }
        best = repos.records.best(
            [row.workload_key for row in rows],
            target_key=job.target_key,
            device_model=device.device.device_model,
            toolchain=toolchain,
        )
    return [
        TaskRow(
            row=row,
            flops=flops.get(row.workload_key, 0.0),
            best_sec=best[row.workload_key].cost_sec if row.workload_key in best else None,
        )
        for row in rows
    ]


def _commit(
    context: StepContext,
    confirming_sec: float,
    device: DeviceLease,
    tasks: Sequence[TaskRow],
    found: Round,
    began: float,
) -> None:
    step = context.step
    with context.commit(device) as repos:
        job = context.job(repos)
        record_ids = _add_records(repos, context, job, device, found)
        trial_ids = repos.trials.add_many(
            job.id,
            step.round,
            [
                NewTrial(
                    position=found.position,
                    ordinal=ordinal,
                    config_key=outcome.config.key,
                    asked_key=outcome.asked.key,
                    outcome=outcome.outcome.value,
                    cost_sec=outcome.cost_sec,
                    message=outcome.message,
                    build_sec=outcome.build_sec,
                    run_sec=outcome.run_sec,
                    measured_at=outcome.measured_at,
                    record_id=record_id,
                )
                for ordinal, (outcome, record_id) in enumerate(zip(found.outcomes, record_ids, strict=True))
            ],
            device_id=device.device.id,
        )
        changes, improved = after_round(
            tasks[found.position], found.outcomes, spent_sec=found.spent_sec, failed=found.failed is not None
        )
        if found.new_space is not None:
            repos.spaces.put(space_row(found.new_space, found.task, tasks[found.position].row.toolchain))
        if found.space is not None:
            changes["space_key"] = found.space.key
        row = repos.jobs.update_task(job.id, found.position, **changes)
        # A task that has not had its turn shows the best on record as well: the compiler will use it.
        for task in tasks:
            if task.position != found.position and task.best_sec != task.row.best_cost_sec:
                repos.jobs.update_task(job.id, task.position, best_cost_sec=task.best_sec)
        trials = [outcome for outcome in found.outcomes if outcome.is_trial]
        job = repos.jobs.update(
            job.id,
            trials=job.trials + len(trials),
            failures=job.failures + sum(outcome.outcome is not Outcome.OK for outcome in trials),
            trials_since_improvement=0 if improved else job.trials_since_improvement + len(trials),
            tuned_sec=job.tuned_sec + (time.monotonic() - began),
            best_latency_sec=best_latency_sec(
                [row if task.position == row.position else task for task in tasks]
            ),
            progress={
                "phase": "tuning",
                "task": row.name,
                "position": row.position,
                "device": device.device.name,
            },
        )
        repos.events.add(job.id, "round", _round_event(step.round, job, row, found))
        _go_on(context, repos, job, device, confirming_sec)
    for trial_id, outcome in zip(trial_ids, found.outcomes, strict=True):
        # A candidate's failure is a result like others; one of the infrastructure is for whoever looks after the farm.
        log.log(
            logging.DEBUG if outcome.is_trial else logging.WARNING,
            "trial done",
            trial_id=trial_id,
            outcome=outcome.outcome.value,
            cost_sec=outcome.cost_sec,
            error=outcome.message or None,
        )
    log.info(
        "round done",
        first_trial_id=trial_ids[0] if trial_ids else None,
        trials=len(trials),
        total=job.trials,
        best_cost_sec=row.best_cost_sec,
        seconds=round(found.spent_sec, 3),
    )


def _go_on(
    context: StepContext,
    repos: Repositories,
    job: Job,
    device: DeviceLease,
    confirming_sec: float,
    gain_per_min: float | None = None,
) -> None:
    """Plan another round, or what follows the search if the job's budget, as it is now, is spent."""
    search = without_confirming(Budget.from_json(job.budget), confirming_sec)
    stop_reason = _budget_spent(search, job, gain_per_min)
    if stop_reason is None:
        context.plan(repos, StepKind.TUNE, job, round=context.step.round + 1)
    else:
        _end_search(context, repos, job, device, stop_reason)


def _end_search(
    context: StepContext, repos: Repositories, job: Job, device: DeviceLease, stop_reason: str
) -> None:
    doubts = find_doubts(context, repos, job, repos.jobs.tasks(job.id), device)
    confirm_or_compile(context, repos, job, doubts, stop_reason=stop_reason)


def _add_records(
    repos: Repositories, context: StepContext, job: Job, device: DeviceLease, found: Round
) -> list[str | None]:
    """Store a record for each real trial; return one id, or None, per outcome."""
    if found.device is None:
        return [None] * len(found.outcomes)
    rows = record_rows(
        [outcome for outcome in found.outcomes if outcome.is_trial],
        found.task,
        job,
        device.device,
        num_cores=found.device.num_cores,
        toolchain=context.engine.toolchain,
    )
    ids = iter(repos.records.add_many(rows))
    return [next(ids) if outcome.is_trial else None for outcome in found.outcomes]


def _round_event(number: int, job: Job, row: JobTask, found: Round) -> dict[str, object]:
    counts: dict[str, int] = {}
    for outcome in found.outcomes:
        counts[outcome.outcome.value] = counts.get(outcome.outcome.value, 0) + 1
    return {
        "round": number,
        "position": found.position,
        "task": row.name,
        "outcomes": counts,
        "failed": found.failed,
        "exhausted": row.exhausted,
        "best_cost_sec": row.best_cost_sec,
        "trials": job.trials,
        "failures": job.failures,
        "tuned_sec": job.tuned_sec,
        "best_latency_sec": job.best_latency_sec,
    }


def _budget_spent(budget: Budget, job: Job, gain_per_min: float | None = None) -> str | None:
    return budget.exhausted_by(
        trials=job.trials,
        wall_sec=job.tuned_sec,
        trials_since_improvement=job.trials_since_improvement,
        gain_per_min=gain_per_min,
    )


def _confirming_sec(context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease) -> float:
    """Return how long confirming the winners will take, as it looks now; 0 where time is not limited."""
    if Budget.from_json(job.budget).wall_sec is None:
        return 0.0
    with context.services.uow.read() as repos:
        doubts = find_doubts(context, repos, job, rows, device)
    return sum(doubt.expected_sec for doubt in doubts)
