"""Tracks: rounds of one job side by side, each on a device of its pool.

A track is a chain of tuning steps: each plans the next. A job begins with one track. A step that begins a round opens
another where a device is idle, or the job has fewer devices than its share. A step that gets no device ends its track,
unless it is the job's last. The last track to end ends the search.

Tracks agree with each other while the job's row is locked. Each notes its round in its step's row (`InFlight`) and
claims its configs there (`Claims`), so that no two tracks try the same config, and so that the task scheduler and the
budget count the rounds under way.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tunefarm_app.leases.step_context import StepContext
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, PoolCounts, Step, StepKind, StepState
from tunefarm_tuning.search.scheduler import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A round that is being prepared or measured.

    Attributes:
        position: Position of its task in the job.
        trials: Maximum number of trials.
        asked: Keys of the configs that the tuner proposed, and the track claimed, so far.
        ahead: The track's next round, while it is being prepared.
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
        ahead = None if data.get("ahead") is None else cls.from_json(data["ahead"])
        return cls(position=data["position"], trials=data["trials"], asked=tuple(data["asked"]), ahead=ahead)


class Claims:
    """A track's rounds under way, and the configs that it claimed for them.

    Concurrency: any thread.

    Args:
        context: The step that measures the track's present round.
        present: The track's present round.

    Attributes:
        present: The round as the other tracks see it, with the next one that is being prepared.
    """

    def __init__(self, context: StepContext, present: InFlight) -> None:
        self._context = context
        self._lock = threading.Lock()
        self.present = present

    def claim(self, keys: Sequence[str]) -> Collection[str]:
        """Claim configs for the present round, except those that another track has or had; return all claimed configs."""
        with self._noting() as repos:
            self.present = self._with(repos, self.present, keys)
        return self.present.asked

    def claim_ahead(self, keys: Sequence[str]) -> Collection[str]:
        """Claim configs for the round that is being prepared, in the same way."""
        with self._noting() as repos:
            if self.present.ahead is None:
                return ()
            ahead = self._with(repos, self.present.ahead, keys)
            self.present = replace(self.present, ahead=ahead)
        return ahead.asked

    def prepare(self, repos: Repositories, ahead: InFlight) -> None:
        """Store the round that is being prepared, in a transaction with the job's row locked."""
        with self._lock:
            self.present = replace(self.present, ahead=ahead)
            self._note(repos)

    @contextmanager
    def _noting(self) -> Iterator[Repositories]:
        with self._context.note() as repos:
            self._context.job(repos)  # locks the job's row
            with self._lock:
                yield repos
                self._note(repos)

    def _with(self, repos: Repositories, in_flight: InFlight, keys: Sequence[str]) -> InFlight:
        taken = {
            key
            for other in others_in_flight(repos, self._context.step)
            if other.position == in_flight.position
            for key in other.asked
        }
        # Other tracks may have committed trials since the tuner was told of them.
        taken |= repos.trials.met(self._context.job_id, in_flight.position, keys)
        return replace(in_flight, asked=(*in_flight.asked, *(key for key in keys if key not in taken)))

    def _note(self, repos: Repositories) -> None:
        step = self._context.step
        repos.steps.note_in_flight(step.id, step.fence, self.present.to_json())


def others_in_flight(repos: Repositories, step: Step) -> tuple[InFlight, ...]:
    """Return the rounds that other tracks of the step's job measure or prepare. Lock the job's row first."""
    noted = repos.steps.in_flight(step.subject_id)
    measured = [InFlight.from_json(data) for step_id, data in noted.items() if step_id != step.id]
    return tuple(
        in_flight for round_ in measured for in_flight in (round_, round_.ahead) if in_flight is not None
    )


def with_in_flight(states: Sequence[TaskState], rounds: Sequence[InFlight]) -> list[TaskState]:
    """Return the tasks as if the running rounds had ended after the usual time without a gain."""
    trials: dict[int, list[int]] = defaultdict(list)
    for in_flight in rounds:
        trials[in_flight.position].append(in_flight.trials)
    return [
        state.as_if_over(trials[position]) if position in trials else state
        for position, state in enumerate(states)
    ]


def open_track(repos: Repositories, job: Job) -> Step | None:
    """Plan another track, if there is a device for it. The caller's track has its own already.

    No track is opened while a step of the job is being retried, so that a job whose rounds all fail ends.

    Returns:
        The track's first step, to be sent once it is committed; None if the job has enough.
    """
    pool = repos.devices.counts(job.device_key)
    if pool.up <= 1:
        return None
    tracks = len(repos.steps.open_ids(job.id))
    idle = pool.free > repos.turns.waiting(job.device_key)
    wanted = idle or tracks < share_of_devices(repos, job, pool)
    if tracks >= pool.up or not wanted or repos.steps.in_trouble(job.id):
        return None
    step = repos.steps.add_next(StepKind.TUNE, job)
    repos.steps.mark_sent([step.id])
    return step


def ends_without_device(repos: Repositories, step: Step, job: Job) -> bool:
    """End the track of a step that got no device, if the job has enough other tracks; return whether it was ended.

    A job with fewer devices than its share keeps the track and waits.
    """
    if step.kind is not StepKind.TUNE:
        return False
    tracks = len(repos.steps.open_ids(job.id))
    if tracks <= share_of_devices(repos, job, repos.devices.counts(job.device_key)):
        return False
    repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
    return True


def share_of_devices(repos: Repositories, job: Job, pool: PoolCounts) -> int:
    """Return how many devices of its pool the job may wait for: at least one.

    Jobs of equal priority share the pool equally. While a job of higher priority runs, the others take the devices that it
    leaves.
    """
    rivals = repos.turns.rivals(job)
    if rivals.higher:
        return 1
    return max(1, -(-pool.up // (rivals.equal + 1)))
