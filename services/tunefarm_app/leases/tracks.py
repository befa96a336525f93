"""Tracks: the rounds of one job side by side, on as many devices of its pool as it may have.

A track is a chain of tuning steps: each plans the next. A job begins with one; a step that begins a round plans another
track where a device is idle, or the job has fewer than its share; a step that finds no device ends its track, unless it
is the last. The last one out ends the search.

What the tracks must agree on is agreed on with the job's row locked: each tells in its step's row what it is at
(`InFlight`), so that no two try the same config, and the task scheduler and the budget know what is under way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, PoolCounts, Step, StepKind, StepState
from tunefarm_tuning.search.scheduler import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A round under way.

    Attributes:
        position: Of its task.
        trials: How many at most.
        asked: Keys of the configs that the tuner proposed so far.
        ahead: The track's next round, where it is being prepared.
    """

    position: int
    trials: int
    asked: tuple[str, ...] = ()
    ahead: InFlight | None = None

    def to_json(self) -> Json:
        data: Json = {"position": self.position, "trials": self.trials, "asked": list(self.asked)}
        return data if self.ahead is None else {**data, "ahead": self.ahead.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> InFlight:
        ahead = data.get("ahead")
        return cls(
            position=data["position"],
            trials=data["trials"],
            asked=tuple(data["asked"]),
            ahead=None if ahead is None else cls.from_json(ahead),
        )


def others_in_flight(repos: Repositories, step: Step) -> tuple[InFlight, ...]:
    """Return what the other tracks of the step's job are at, and what they prepare. Lock the job's row first."""
    told = repos.steps.in_flight(step.subject_id)
    rounds = [InFlight.from_json(one) for step_id, one in told.items() if step_id != step.id]
    return tuple(one for each in rounds for one in (each, each.ahead) if one is not None)


def with_in_flight(states: Sequence[TaskState], rounds: Sequence[InFlight]) -> list[TaskState]:
    """Return the tasks as if the rounds under way were over, had taken the usual time and found nothing."""
    trials: dict[int, list[int]] = defaultdict(list)
    for one in rounds:
        trials[one.position].append(one.trials)
    return [
        state.as_if_over(trials[position]) if position in trials else state
        for position, state in enumerate(states)
    ]


def open_track(repos: Repositories, job: Job) -> Step | None:
    """Plan another track, if there is a device for it. The caller's track has its own already.

    None is opened while one is in trouble: a job whose rounds all fail has to come to an end.

    Returns:
        The track's first step, to be sent once it is committed; None where the job has enough.
    """
    pool = repos.devices.counts(job.device_key)
    if pool.up <= 1:
        return None
    tracks = len(repos.steps.open_ids(job.id))
    idle = pool.free > repos.turns.waiting(job.device_key)
    wanted = idle or tracks < share_of_devices(repos, job, pool)
    if tracks >= pool.up or not wanted or repos.steps.in_trouble(job.id):
        return None
    step = plan_round(repos, job)
    repos.steps.mark_sent([step.id])
    return step


def plan_round(repos: Repositories, job: Job) -> Step:
    """Add a tuning step to the job. Lock the job's row first."""
    return repos.steps.add(
        StepKind.TUNE,
        subject_id=job.id,
        model_id=job.model_id,
        job_id=job.id,
        round=repos.steps.next_round(StepKind.TUNE, job.id),
    )


def ends_without_device(repos: Repositories, step: Step, job: Job) -> bool:
    """End the step's track, which found no device, where the job has others and no right to more; return whether it did.

    A job that has fewer devices than its share goes on waiting with it.
    """
    if step.kind is not StepKind.TUNE:
        return False
    tracks = len(repos.steps.open_ids(job.id))
    if tracks <= share_of_devices(repos, job, repos.devices.counts(job.device_key)):
        return False
    repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
    return True


def share_of_devices(repos: Repositories, job: Job, pool: PoolCounts) -> int:
    """Return how many devices of its pool the job may wait for: one at least.

    Jobs of one priority share what there is; where one of a higher priority is at work, the others take what it leaves.
    """
    rivals = repos.turns.rivals(job)
    if rivals.higher:
        return 1
    return max(1, -(-pool.up // (rivals.equal + 1)))
