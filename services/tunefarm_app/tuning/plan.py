"""Plan: choose the task and the number of trials of the job's next round, or end the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import Claims, InFlight, open_track, others_in_flight, with_in_flight
from tunefarm_app.models.quantised import job_pipeline
from tunefarm_app.storage.rows import grouped
from tunefarm_app.tuning.confirmation import due_confirmations
from tunefarm_db.values import DeviceLease, Job, JobTask, Json, Step
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.confirmation import search_budget
from tunefarm_tuning.search.scheduler import RoundSummary, TaskScheduler, TaskState
from tunefarm_tuning.search.task_groups import for_scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A job's task with the values from other tables that planning needs.

    Attributes:
        flops: Floating-point operations of one call.
        best_cost_sec: Best recorded cost for this target, device model and toolchain, from any job.
    """

    row: JobTask
    flops: float
    best_cost_sec: float | None

    @property
    def position(self) -> int:
        return self.row.position

    @property
    def weight(self) -> int:
        return self.row.weight

    @property
    def workload_key(self) -> str:
        return self.row.workload_key

    @property
    def alternative(self) -> Json | None:
        return self.row.alternative

    @property
    def state(self) -> TaskState:
        """The task as the scheduler sees it, without its alternatives."""
        return TaskState(
            weight=self.row.weight,
            flops=self.flops,
            history=tuple(
                RoundSummary(trials=int(trials), best_sec=best_sec) for trials, best_sec in self.row.history
            ),
            spent_sec=self.row.spent_sec,
            best_sec=self.best_cost_sec,
            exhausted=self.row.exhausted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan of a step.

    Attributes:
        tasks: All of the job's tasks, by position.
        confirming_sec: How long confirming the winners is expected to take.
        gain_per_min: As from `TaskScheduler.gain_per_min`.
        round: The round to measure; None if the budget is spent as soon as the other tracks are done.
        exhausted: There is no round because no task has anything left to try.
        prefetched: The round is the one that this process has prefetched.
    """

    tasks: Sequence[PlannedTask]
    confirming_sec: float
    gain_per_min: float | None
    round: InFlight | None
    exhausted: bool
    prefetched: bool = False


def choose_round(
    context: StepContext,
    job: Job,
    rows: Sequence[JobTask],
    device: DeviceLease,
    prefetched: InFlight | None = None,
) -> Choice:
    """Choose the step's round and tell the job's other tracks; open another track if there is a device for it.

    Args:
        context: The step.
        job: Its job.
        rows: The job's tasks.
        device: The device that will measure the round.
        prefetched: The round that this process has prefetched. It is chosen, unless its task is over, or another track
            took its configs since.
    """
    tasks = _planned_tasks(context, job, rows, device)
    confirming_sec = _confirming_sec(context, job, rows, device)
    scheduler = TaskScheduler()
    states = _scheduler_states(tasks)
    gain_per_min = scheduler.gain_per_min(states)
    first_step: Step | None = None
    chosen: InFlight | None = None
    with context.note() as repos:
        job = context.job(repos)
        budget = search_budget(Budget.from_json(job.budget), confirming_sec)
        others = others_in_flight(repos, context.step)
        trials = job.trials + sum(other.trials for other in others)
        states = with_in_flight(states, others)
        position = scheduler.next(states)
        if position is not None and why_spent(budget, job, gain_per_min, trials=trials) is None:
            if prefetched is not None and _may_be_taken(prefetched, states, others):
                position = prefetched.position
            else:
                prefetched = None
            size = _round_size(job, states, position, budget, trials=trials, wall_sec=job.tuned_sec)
            if prefetched is not None:
                chosen = replace(prefetched, trials=min(prefetched.trials, size))
            else:
                chosen = InFlight(position=position, trials=size)
            repos.steps.note_in_flight(context.step.id, context.step.fence, chosen.to_json())
            if not others:
                repos.jobs.update(job.id, counted_until=repos.now())
            has_room = budget.trials is None or trials + size < budget.trials
            if has_room and had_trials(tasks[position].row):
                first_step = open_track(repos, job)
    if first_step is not None:
        context.services.dispatcher.send(first_step.id, first_step.kind)
    return Choice(
        tasks=tasks,
        confirming_sec=confirming_sec,
        gain_per_min=gain_per_min,
        round=chosen,
        exhausted=position is None,
        prefetched=chosen is not None and prefetched is not None,
    )


def choose_next_round(context: StepContext, device: DeviceLease, claims: Claims) -> PlannedTask | None:
    """Choose the track's next round as if the present one had ended without a gain, and tell the other tracks.

    The next round is never of the present round's task: it would have to know that one's results.

    Returns:
        The round's task; the round itself is `claims.present.ahead`. None if no round shall be prefetched.
    """
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        rows = repos.jobs.tasks(job.id)
    tasks = _planned_tasks(context, job, rows, device)
    confirming_sec = _confirming_sec(context, job, rows, device)
    scheduler = TaskScheduler()
    with context.note() as repos:
        job = context.job(repos)
        budget = search_budget(Budget.from_json(job.budget), confirming_sec)
        present = claims.present
        under_way = [*others_in_flight(repos, context.step), present]
        states = with_in_flight(_scheduler_states(tasks), under_way)
        trials = job.trials + sum(in_flight.trials for in_flight in under_way)
        wall_sec = job.tuned_sec + present.trials * scheduler.sec_per_trial(states, present.position)
        position = scheduler.next(states)
        if (
            position is None
            or position == present.position
            or budget.exhausted_by(
                trials=trials, wall_sec=wall_sec, trials_since_improvement=job.trials_since_improvement
            )
        ):
            return None
        size = _round_size(job, states, position, budget, trials=trials, wall_sec=wall_sec)
        claims.prepare(repos, InFlight(position=position, trials=size))
    return tasks[position]


def had_trials(row: JobTask) -> bool:
    """Return whether the task's last round had trials.

    If it had none, other tracks are trying all that is left of the task, or its devices are in trouble.
    """
    return not row.history or row.history[-1][0] > 0


def why_spent(
    budget: Budget, job: Job, gain_per_min: float | None = None, *, trials: int | None = None
) -> str | None:
    """Return the limit of the search that is reached, or None; `trials` defaults to the job's."""
    return budget.exhausted_by(
        trials=job.trials if trials is None else trials,
        wall_sec=job.tuned_sec,
        trials_since_improvement=job.trials_since_improvement,
        gain_per_min=gain_per_min,
    )


def _may_be_taken(prefetched: InFlight, states: Sequence[TaskState], others: Sequence[InFlight]) -> bool:
    return not states[prefetched.position].exhausted and not any(
        other.position == prefetched.position and set(other.asked) & set(prefetched.asked) for other in others
    )


def _round_size(
    job: Job, states: Sequence[TaskState], position: int, budget: Budget, *, trials: int, wall_sec: float
) -> int:
    most = int(job.options.get("round_size", 8))
    return TaskScheduler().round_size(states, position, most, budget, trials=trials, wall_sec=wall_sec)


def _scheduler_states(tasks: Sequence[PlannedTask]) -> list[TaskState]:
    """Return the tasks of a job as the task scheduler sees them, in order."""
    return for_scheduler(
        [grouped(task, task.best_cost_sec) for task in tasks], [task.state for task in tasks]
    )


def _planned_tasks(
    context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease
) -> list[PlannedTask]:
    toolchain = context.engine.toolchain
    with context.services.uow.read() as repos:
        flops = repos.models.flops(job.model_id, pipeline=job_pipeline(job), toolchain=toolchain)
        best_costs = repos.records.best_costs(
            [row.workload_key for row in rows],
            target_key=job.target_key,
            device_model=device.device.device_model,
            toolchain=toolchain,
        )
    return [
        PlannedTask(
            row=row, flops=flops.get(row.workload_key, 0.0), best_cost_sec=best_costs.get(row.workload_key)
        )
        for row in rows
    ]


def _confirming_sec(context: StepContext, job: Job, rows: Sequence[JobTask], device: DeviceLease) -> float:
    """Return the expected seconds of confirming the winners; 0 if time is not limited."""
    if Budget.from_json(job.budget).wall_sec is None:
        return 0.0
    with context.services.uow.read() as repos:
        due = due_confirmations(context, repos, job, rows, device)
    return sum(confirmation.expected_sec for confirmation in due)
