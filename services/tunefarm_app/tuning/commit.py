"""The tune step: one round of one task of a job, on one leased device."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

import structlog

from tunefarm_app.leases.device_wait import wait_for_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import plan_round
from tunefarm_app.storage.rows import record_rows, space_row
from tunefarm_app.tuning.device_trouble import check_measured
from tunefarm_app.tuning.plan import Choice, choose_round, why_spent
from tunefarm_app.tuning.prefetch import RoundAhead
from tunefarm_app.tuning.progress import after_round, as_of_now, best_latency_sec
from tunefarm_app.tuning.re_measurement import confirm_or_compile, find_doubts
from tunefarm_app.tuning.round import Round, measure_round
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask, NewTrial
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.contenders import without_confirming
from tunefarm_tuning.search.trial_outcome import TrialOutcome

log = structlog.stdlib.get_logger(__name__)


def run_tune(context: StepContext) -> None:
    """Measure one round, record it, and plan what follows: another round, or the compiler.

    Raises:
        DeviceLostError: If nothing could be measured, and no candidate was at work; the step is tried again, elsewhere if there
            is an elsewhere.
        ConflictError: ``toolchain-changed`` if the worker's compiler is not the one that the tasks were made with.
    """
    ahead = None if context.prefetch is None else context.prefetch.take()
    assert ahead is None or isinstance(ahead, RoundAhead)
    try:
        _run_tune(context, ahead)
    finally:
        if ahead is not None:
            ahead.discard()


def _run_tune(context: StepContext, ahead: RoundAhead | None) -> None:
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
    choice = choose_round(context, job, rows, device, None if ahead is None else ahead.in_flight)
    if choice.round is None:
        with context.commit(device) as repos:
            _go_on(context, repos, context.job(repos), device, choice, exhausted=choice.exhausted)
        return
    task = choice.tasks[choice.round.position]
    prepared = ahead.round if ahead is not None and choice.prepared else None
    found = measure_round(context, job, task, device, choice.round, began, prepared)
    context.lease.check()
    check_measured(context, device, found.outcomes)
    if context.prefetch is not None:
        context.prefetch.settle()
    _commit(context, device, choice, found)


def _commit(context: StepContext, device: DeviceLease, choice: Choice, found: Round) -> None:
    step = context.step
    with context.commit(device) as repos:
        job = context.job(repos)
        tasks = as_of_now(choice.tasks, repos.jobs.tasks(job.id))
        task = tasks[found.position]
        known = repos.trials.known(job.id, found.position, [one.config.key for one in found.outcomes])
        # Two tracks may come from two configs to one: what is applied counts, and the first to commit it.
        outcomes = [one for one in found.outcomes if one.config.key not in known]
        record_ids = _add_records(repos, context, job, device, found, outcomes)
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
                for ordinal, (outcome, record_id) in enumerate(zip(outcomes, record_ids, strict=True))
            ],
            device_id=device.device.id,
        )
        exhausted = found.failed is not None or not (found.outcomes or found.crowded)
        changes, improved = after_round(task, outcomes, spent_sec=found.spent_sec, exhausted=exhausted)
        if found.new_space is not None:
            repos.spaces.put(space_row(found.new_space, found.task, task.row.toolchain))
        if found.space is not None:
            changes["space_key"] = found.space.key
        row = repos.jobs.update_task(job.id, found.position, **changes)
        # A task that has not had its turn shows the best on record as well: the compiler will use it.
        for other in tasks:
            if other.position != found.position and other.best_sec != other.row.best_cost_sec:
                repos.jobs.update_task(job.id, other.position, best_cost_sec=other.best_sec)
        trials = [outcome for outcome in outcomes if outcome.is_trial]
        now = repos.now()
        job = repos.jobs.update(
            job.id,
            trials=job.trials + len(trials),
            failures=job.failures + sum(outcome.outcome is not Outcome.OK for outcome in trials),
            trials_since_improvement=0 if improved else job.trials_since_improvement + len(trials),
            tuned_sec=job.tuned_sec + max(now - (job.counted_until or now), 0.0),
            counted_until=now,
            best_latency_sec=best_latency_sec(
                [row if other.position == row.position else other for other in tasks]
            ),
            progress={
                "phase": "tuning",
                "task": row.name,
                "position": row.position,
                "device": device.device.name,
            },
        )
        repos.events.add(job.id, "round", _round_event(step.round, job, row, device, found, outcomes))
        _go_on(context, repos, job, device, choice, crowded=found.crowded)
    for trial_id, outcome in zip(trial_ids, outcomes, strict=True):
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
    choice: Choice,
    *,
    exhausted: bool = False,
    crowded: bool = False,
) -> None:
    """Plan another round, or what follows the search if the job's budget, as it is now, is spent.

    While other tracks are at work this one just ends there: the last one out sees to what follows.

    Args:
        context: The step.
        repos: The transaction that ends it.
        job: As it is now.
        device: Where the step was.
        choice: What the step was to do.
        exhausted: Nothing is left to try.
        crowded: The other tracks had all that is left to try of a task.
    """
    search = without_confirming(Budget.from_json(job.budget), choice.confirming_sec)
    gain_per_min = None if choice.round is not None else choice.gain_per_min
    stop_reason = "exhausted" if exhausted else why_spent(search, job, gain_per_min)
    if stop_reason is not None:
        repos.steps.cancel_ready(job.id)
    others = bool(repos.steps.open_ids(job.id))
    if others and (stop_reason is not None or crowded or choice.round is None):
        return
    if stop_reason is None:
        context.follow_with(repos, plan_round(repos, job))
        return
    doubts = find_doubts(context, repos, job, repos.jobs.tasks(job.id), device)
    confirm_or_compile(context, repos, job, doubts, stop_reason=stop_reason)


def _add_records(
    repos: Repositories,
    context: StepContext,
    job: Job,
    device: DeviceLease,
    found: Round,
    outcomes: Sequence[TrialOutcome],
) -> list[str | None]:
    """Store a record for each real trial; return one id, or None, per outcome."""
    if found.device is None:
        return [None] * len(outcomes)
    rows = record_rows(
        [outcome for outcome in outcomes if outcome.is_trial],
        found.task,
        job,
        device.device,
        num_cores=found.device.num_cores,
        toolchain=context.engine.toolchain,
    )
    ids = iter(repos.records.add_many(rows))
    return [next(ids) if outcome.is_trial else None for outcome in outcomes]


def _round_event(
    number: int,
    job: Job,
    row: JobTask,
    device: DeviceLease,
    found: Round,
    outcomes: Sequence[TrialOutcome],
) -> dict[str, object]:
    counts = Counter(outcome.outcome.value for outcome in outcomes)
    return {
        "round": number,
        "position": found.position,
        "task": row.name,
        "device": device.device.name,
        "outcomes": dict(counts),
        "failed": found.failed,
        "exhausted": row.exhausted,
        "best_cost_sec": row.best_cost_sec,
        "trials": job.trials,
        "failures": job.failures,
        "tuned_sec": job.tuned_sec,
        "best_latency_sec": job.best_latency_sec,
    }
