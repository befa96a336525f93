"""What a tuning step is to do: which of the job's tasks, how many configs, or nothing because the search is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import InFlight, open_track, others_in_flight, with_in_flight
from tunefarm_app.storage.rows import pipeline_of, precision_of
from tunefarm_app.tuning.claiming import Claims
from tunefarm_app.tuning.progress import TaskRow, scheduler_states
from tunefarm_app.tuning.re_measurement import find_doubts
from tunefarm_db.values import DeviceLease, Job, JobTask, Step
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.contenders import without_confirming
from tunefarm_tuning.search.scheduler import TaskScheduler, TaskState
from tunefarm_tuning.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to do, and what is known where it was decided.

    Attributes:
        tasks: All of the job's, by position.
        confirming_sec: How long confirming the winners will take, as it looks now.
        gain_per_min: As `TaskScheduler.gain_per_min` says.
        round: What to measure; None if there is nothing: the budget is spent, once the other tracks are done.
        prepared: It is the one that was prepared ahead.
        exhausted: There is nothing because no task has anything left to try.
    """

    tasks: Sequence[TaskRow]
    confirming_sec: float
    gain_per_min: float | None
    round: InFlight | None
    exhausted: bool
    prepared: bool = False


def choose_round(
    context: StepContext,
    job: Job,
    rows: Sequence[JobTask],
    device: DeviceLease,
    ahead: InFlight | None = None,
) -> Choice:
    """Decide about the step's round and tell the job's other tracks; open another one if there is a device for it.

    Args:
        context: The step.
        job: Its job.
        rows: The job's tasks.
        device: Where it is to measure.
        ahead: What this process has prepared. It is taken, unless its task is over, or another track took its configs since.
    """
    tasks = _with_known_costs(context, job, rows, device)
    confirming_sec = _confirming_sec(context, job, rows, device)
    scheduler = TaskScheduler()
    states = scheduler_states(tasks)
    gain_per_min = scheduler.gain_per_min(states)
    track: Step | None = None
    chosen: InFlight | None = None
    with context.note() as repos:
        job = context.job(repos)
        search = without_confirming(Budget.from_json(job.budget), confirming_sec)
        others = others_in_flight(repos, context.step)
        trials = job.trials + sum(other.trials for other in others)
        states = with_in_flight(states, others)
        position = scheduler.next(states)
        if position is not None and why_spent(search, job, gain_per_min, trials=trials) is None:
            if ahead is not None and _may_be_taken(ahead, states, others):
                position = ahead.position
            else:
                ahead = None
            size = _round_size(job, states, position, search, trials=trials, wall_sec=job.tuned_sec)
            chosen = InFlight(position=position, trials=size)
            if ahead is not None:
                chosen = replace(ahead, trials=min(ahead.trials, size))
            repos.steps.note_in_flight(context.step.id, context.step.fence, chosen.to_json())
            if not others:
                repos.jobs.update(job.id, counted_until=repos.now())
            if found_some(tasks[position].row) and (search.trials is None or trials + size < search.trials):
                track = open_track(repos, job)
    if track is not None:
        context.services.dispatcher.send(track.id, track.kind)
    return Choice(
        tasks=tasks,
        confirming_sec=confirming_sec,
        gain_per_min=gain_per_min,
        round=chosen,
        exhausted=position is None,
        prepared=chosen is not None and ahead is not None,
    )


def choose_ahead(context: StepContext, device: DeviceLease, claims: Claims) -> TaskRow | None:
    """Choose the track's next round as if the present one were over and had found nothing, and tell the other tracks.

    Never one of the same task: that is to know what the present one finds.

    Returns:
        Its task, its round being `claims.round.ahead`; None if there is none to be prepared.
    """
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        rows = repos.jobs.tasks(job.id)
    tasks = _with_known_costs(context, job, rows, device)
    confirming_sec = _confirming_sec(context, job, rows, device)
    scheduler = TaskScheduler()
    with context.note() as repos:
        job = context.job(repos)
        search = without_confirming(Budget.from_json(job.budget), confirming_sec)
        present = claims.round
        under_way = [*others_in_flight(repos, context.step), present]
        states = with_in_flight(scheduler_states(tasks), under_way)
        trials = job.trials + sum(one.trials for one in under_way)
        wall_sec = job.tuned_sec + present.trials * scheduler.sec_per_trial(states, present.position)
        position = scheduler.next(states)
        if (
            position is None
            or position == present.position
            or search.exhausted_by(
                trials=trials, wall_sec=wall_sec, trials_since_improvement=job.trials_since_improvement
            )
        ):
            return None
        size = _round_size(job, states, position, search, trials=trials, wall_sec=wall_sec)
        claims.prepare(repos, InFlight(position=position, trials=size))
    return tasks[position]


def _may_be_taken(ahead: InFlight, states: Sequence[TaskState], others: Sequence[InFlight]) -> bool:
    return not states[ahead.position].exhausted and not any(
        other.position == ahead.position and set(other.asked) & set(ahead.asked) for other in others
    )


def _round_size(
    job: Job, states: Sequence[TaskState], position: int, search: Budget, *, trials: int, wall_sec: float
) -> int:
    most = int(job.options.get("round_size", 8))
    return TaskScheduler().round_size(states, position, most, search, trials=trials, wall_sec=wall_sec)


def found_some(row: JobTask) -> bool:
    """Return whether the task's last round had trials; else other tracks are at all there is, or its devices are in trouble."""
    return not row.history or row.history[-1][0] > 0


def why_spent(
    budget: Budget, job: Job, gain_per_min: float | None = None, *, trials: int | None = None
) -> str | None:
    """Return which limit of the search is reached, None where none is; `trials` is as of the job by default."""
    return budget.exhausted_by(
        trials=job.trials if trials is None else trials,
        wall_sec=job.tuned_sec,
        trials_since_improvement=job.trials_since_improvement,
        gain_per_min=gain_per_min,
    )


def _with_known_costs(
    context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease
) -> list[TaskRow]:
    """Return the tasks with their operations, and with the best that is on record from whatever job."""
    toolchain = context.engine.toolchain
    with context.services.uow.read() as repos:
        pipeline = pipeline_of(Target.from_json(job.target), precision_of(job))
        flops = repos.models.flops(job.model_id, pipeline=pipeline, toolchain=toolchain)
        best = repos.records.best_costs(
            [row.workload_key for row in rows],
            target_key=job.target_key,
            device_model=device.device.device_model,
            toolchain=toolchain,
        )
    return [
        TaskRow(
            row=row,
            flops=flops.get(row.workload_key, 0.0),
            best_sec=best.get(row.workload_key),
        )
        for row in rows
    ]


def _confirming_sec(context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease) -> float:
    """Return how long confirming the winners will take, as it looks now; 0 where time is not limited."""
    if Budget.from_json(job.budget).wall_sec is None:
        return 0.0
    with context.services.uow.read() as repos:
        doubts = find_doubts(context, repos, job, rows, device)
    return sum(doubt.expected_sec for doubt in doubts)
