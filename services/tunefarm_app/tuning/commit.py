"""Commit: one transaction writes a round's trials and records, the progress, and the step that follows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import structlog

from tunefarm_app.jobs.drafts import plan_next_draft
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import best_latency_sec, record_rows, space_row
from tunefarm_app.tuning.confirmation import confirm_or_compile, due_confirmations
from tunefarm_app.tuning.plan import Choice, PlannedTask, why_spent
from tunefarm_app.tuning.round import MeasuredRound
from tunefarm_db.repositories.jobs.job_tasks import JobTaskChanges
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask, NewTrial, StepKind
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.confirmation import search_budget
from tunefarm_tuning.search.trial_outcome import TrialOutcome

log = structlog.stdlib.get_logger(__name__)


def commit_without_round(context: StepContext, device: DeviceLease, choice: Choice) -> None:
    """End a step that has no round to measure; plan what follows."""
    with context.commit(device) as repos:
        _plan_next(context, repos, context.job(repos), device, choice, exhausted=choice.exhausted)


def commit_round(context: StepContext, device: DeviceLease, choice: Choice, measured: MeasuredRound) -> None:
    """Write a measured round, end the step, and plan what follows.

    Raises:
        LeaseLostError: If the step is no longer ours; nothing is written.
        TransientError: ``device-lease-lost`` if the device is no longer ours; nothing is written.
    """
    with context.commit(device) as repos:
        job = context.job(repos)
        tasks = _as_of_now(choice.tasks, repos.jobs.tasks(job.id))
        keys = [outcome.config.key for outcome in measured.outcomes]
        committed = repos.trials.known(job.id, measured.position, keys)
        # Different asked configs of two tracks may become one applied config: the first commit keeps its trial.
        outcomes = [outcome for outcome in measured.outcomes if outcome.config.key not in committed]
        record_ids = _add_records(repos, context, job, device, measured, outcomes)
        trial_ids = repos.trials.add_many(
            job.id,
            context.step.round,
            _new_trials(measured.position, outcomes, record_ids),
            device_id=device.device.id,
        )
        changes, improved = _after_round(tasks[measured.position], measured, outcomes)
        if measured.new_space is not None:
            toolchain = tasks[measured.position].row.toolchain
            repos.spaces.put(space_row(measured.new_space, measured.task, toolchain))
        row = repos.jobs.update_task(job.id, measured.position, **changes)
        _show_best_costs(repos, job, [task for task in tasks if task.position != measured.position])
        job = _update_job(repos, job, device, tasks, row, outcomes, improved=improved)
        event = _round_event(context.step.round, job, row, device, measured, outcomes)
        repos.events.add(job.id, "round", event)
        _plan_next(context, repos, job, device, choice, crowded=measured.crowded)
    _log(trial_ids, outcomes, job, row, measured.spent_sec)


def _as_of_now(tasks: Sequence[PlannedTask], rows: Sequence[JobTask]) -> list[PlannedTask]:
    """Return tasks with their present rows: other rounds of the job may have ended since the plan."""
    return [
        replace(
            task,
            row=row,
            best_cost_sec=task.best_cost_sec if row.rounds == task.row.rounds else _lower_cost(task, row),
        )
        for task, row in zip(tasks, rows, strict=True)
    ]


def _lower_cost(task: PlannedTask, row: JobTask) -> float | None:
    costs = [cost_sec for cost_sec in (task.best_cost_sec, row.best_cost_sec) if cost_sec is not None]
    return min(costs, default=None)


def _add_records(
    repos: Repositories,
    context: StepContext,
    job: Job,
    device: DeviceLease,
    measured: MeasuredRound,
    outcomes: Sequence[TrialOutcome],
) -> list[str | None]:
    """Store a record for each real trial; return one id, or None, per outcome."""
    rows = record_rows(outcomes, measured.task, job, device.device, toolchain=context.engine.toolchain)
    ids = iter(repos.records.add_many(rows))
    return [next(ids) if outcome.is_trial else None for outcome in outcomes]


def _new_trials(
    position: int, outcomes: Sequence[TrialOutcome], record_ids: Sequence[str | None]
) -> list[NewTrial]:
    return [
        NewTrial(
            position=position,
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
    ]


def _after_round(
    task: PlannedTask, measured: MeasuredRound, outcomes: Sequence[TrialOutcome]
) -> tuple[JobTaskChanges, bool]:
    """Return the task's new columns, and whether the round found a better kernel."""
    trials = _trials(outcomes)
    costs = [outcome.cost_sec for outcome in trials if outcome.cost_sec is not None]
    improved = bool(costs) and (task.best_cost_sec is None or min(costs) < task.best_cost_sec)
    best_sec = min(costs) if improved else task.best_cost_sec
    changes: JobTaskChanges = {
        "trials": task.row.trials + len(trials),
        "failures": task.row.failures + _num_failures(trials),
        "best_cost_sec": best_sec,
        "spent_sec": task.row.spent_sec + measured.spent_sec,
        "rounds": task.row.rounds + 1,
        "history": [*task.row.history, [len(trials), best_sec]],
        "exhausted": measured.exhausted,
    }
    if measured.space is not None:
        changes["space_key"] = measured.space.key
    return changes, improved


def _show_best_costs(repos: Repositories, job: Job, tasks: Sequence[PlannedTask]) -> None:
    """Store the best recorded cost of every task, also of tasks without a round: the compiler uses that record."""
    for task in tasks:
        if task.best_cost_sec != task.row.best_cost_sec:
            repos.jobs.update_task(job.id, task.position, best_cost_sec=task.best_cost_sec)


def _update_job(
    repos: Repositories,
    job: Job,
    device: DeviceLease,
    tasks: Sequence[PlannedTask],
    row: JobTask,
    outcomes: Sequence[TrialOutcome],
    *,
    improved: bool,
) -> Job:
    """Add a round of one task to the job's progress; return the job."""
    trials = _trials(outcomes)
    now = repos.now()
    return repos.jobs.update(
        job.id,
        trials=job.trials + len(trials),
        failures=job.failures + _num_failures(trials),
        trials_since_improvement=0 if improved else job.trials_since_improvement + len(trials),
        tuned_sec=job.tuned_sec + max(now - (job.counted_until or now), 0.0),
        counted_until=now,
        best_latency_sec=best_latency_sec([row if task.position == row.position else task for task in tasks]),
        progress=search_progress("tuning", row, device),
    )


def search_progress(phase: str, row: JobTask, device: DeviceLease) -> dict[str, object]:
    """Return what a job's row says of its search: which task was measured last, and where."""
    return {
        "phase": phase, "task": row.name, "position": row.position, "device": device.device.name,
    }  # fmt: skip


def _round_event(
    number: int,
    job: Job,
    row: JobTask,
    device: DeviceLease,
    measured: MeasuredRound,
    outcomes: Sequence[TrialOutcome],
) -> dict[str, object]:
    counts = Counter(outcome.outcome.value for outcome in outcomes)
    return {
        "round": number,
        "position": measured.position,
        "task": row.name,
        "device": device.device.name,
        "outcomes": dict(counts),
        "failed": measured.failed,
        "exhausted": row.exhausted,
        "best_cost_sec": row.best_cost_sec,
        "trials": job.trials,
        "failures": job.failures,
        "tuned_sec": job.tuned_sec,
        "best_latency_sec": job.best_latency_sec,
    }


def _plan_next(
    context: StepContext,
    repos: Repositories,
    job: Job,
    device: DeviceLease,
    choice: Choice,
    *,
    exhausted: bool = False,
    crowded: bool = False,
) -> None:
    """Plan another round, or the step after the search if the job's present budget is spent.

    While other tracks are at work, a track that has nothing to do just ends: the last one plans what follows. So does
    one whose task is `crowded`: the others try all that is left of it. `exhausted`: no task has anything left to try.
    """
    budget = search_budget(Budget.from_json(job.budget), choice.confirming_sec)
    gain_per_min = None if choice.round is not None else choice.gain_per_min
    stop_reason = "exhausted" if exhausted else why_spent(budget, job, gain_per_min)
    if stop_reason is not None:
        repos.steps.cancel_ready(job.id)
    has_other_tracks = bool(repos.steps.open_ids(job.id))
    if has_other_tracks and (stop_reason is not None or crowded or choice.round is None):
        return
    if stop_reason is None:
        context.follow_with(repos, repos.steps.add_next(StepKind.TUNE, job))
        plan_next_draft(context, repos, job)
        return
    due = due_confirmations(context, repos, job, repos.jobs.tasks(job.id), device)
    confirm_or_compile(context, repos, job, due, stop_reason=stop_reason)


def _log(
    trial_ids: Sequence[str], outcomes: Sequence[TrialOutcome], job: Job, row: JobTask, spent_sec: float
) -> None:
    for trial_id, outcome in zip(trial_ids, outcomes, strict=True):
        # A candidate's failure is a result; a failure of the infrastructure concerns the farm's operator.
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
        trials=len(_trials(outcomes)),
        total=job.trials,
        best_cost_sec=row.best_cost_sec,
        seconds=round(spent_sec, 3),
    )


def _trials(outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome]:
    return [outcome for outcome in outcomes if outcome.is_trial]


def _num_failures(trials: Sequence[TrialOutcome]) -> int:
    return sum(trial.outcome is not Outcome.OK for trial in trials)
