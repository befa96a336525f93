"""Two transactions about tracks at once never deadlock, on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import pause_job, resume_job
from tunefarm_app.jobs.transitions import fail_subject
from tunefarm_app.leases.device_turns import wake_next
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.steps import run as running
from tunefarm_app.steps.run import run_step
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, Step, StepKind, StepState
from tunefarm_tuning.core.errors import CancelledError, TunefarmError


@pytest.fixture
def farm(new_postgres_url: Callable[[], str], tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(
        farm_settings(
            tmp_path,
            database_url=new_postgres_url(),
        )
    )
    farm.add_device()
    yield farm
    farm.services.close()


def tuning(farm: Farm, tracks: int, seed: int = 0) -> tuple[Job, list[Step]]:
    """Return a job in its search, with a number of tracks that wait for workers."""
    model = farm.upload(Scenario(tasks=1))
    farm.run(steps=1)
    job = farm.submit(model, trials=64, seed=seed)
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=job.id)
        repos.jobs.move(job.id, JobState.EXTRACTING)
        job = repos.jobs.move(job.id, JobState.TUNING)
        steps = [plan(repos, job, number) for number in range(tracks)]
    return job, steps


def plan(repos: Any, job: Job, number: int) -> Step:
    return repos.steps.add(
        StepKind.TUNE, subject_id=job.id, model_id=job.model_id, job_id=job.id, round=number
    )


def claimed(farm: Farm, steps: list[Step]) -> list[Step]:
    with farm.services.uow.write() as repos:
        return [
            step for open_step in steps if (step := repos.steps.claim(open_step.id, "me", 60.0)) is not None
        ]


class Together:
    """Runs functions in threads; `errors` holds their exceptions."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, *bodies: Callable[[], object]) -> None:
        for body in bodies:
            thread = threading.Thread(target=self._run, args=(body,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, body: Callable[[], object]) -> None:
        try:
            body()
        except Exception as error:
            self.errors.append(error)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive()
        assert self.errors == []


def wait_for_lock(farm: Farm, waiters: int = 1) -> None:
    """Wait until a number of transactions wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    def blocked() -> bool:
        with farm.services.uow.engine.begin() as connection:
            return bool(connection.exec_driver_sql(query).scalar_one() >= waiters)

    wait_until(blocked, "a lock to be waited for")


def test_two_tracks_fail_for_good_at_once(farm: Farm) -> None:
    job, steps = tuning(farm, 3)
    tracks = claimed(farm, steps[:2])
    both_have_ended = threading.Barrier(2, timeout=300)

    def fail(step: Step) -> None:
        with farm.services.uow.write() as repos:
            repos.steps.finish(step.id, step.fence, state=StepState.FAILED, error={"code": "odd"})
            both_have_ended.wait()
            fail_subject(repos, step, {"code": "odd", "message": ""}, final=True)

    together = Together()
    together.start(*(lambda step=step: fail(step) for step in tracks))
    together.join()
    assert farm.job(job.id).state is JobState.FAILED
    assert [step.state for step in farm.steps(job.id) if step.kind is StepKind.TUNE] == [
        StepState.FAILED,
        StepState.FAILED,
        StepState.CANCELLED,
    ]


def test_a_track_pauses_while_another_one_commits(farm: Farm) -> None:
    job, steps = tuning(farm, 2)
    mine, other = claimed(farm, steps)
    with farm.services.uow.write() as repos:
        repos.jobs.move(job.id, JobState.PAUSED)
    together = Together()
    with farm.services.uow.write() as repos:
        repos.steps.lock_claimed(other.id, other.fence)
        together.start(lambda: running._pause_quietly(farm.services, mine))
        together.join()
        assert repos.jobs.get(job.id, lock=True).state is JobState.PAUSED
    assert [step.state for step in farm.steps(job.id)[-2:]] == [StepState.PAUSED, StepState.LEASED]


def test_two_workers_come_to_a_job_that_is_paused(farm: Farm) -> None:
    job, steps = tuning(farm, 2)
    with farm.services.uow.write() as repos:
        repos.jobs.move(job.id, JobState.PAUSED)
    together = Together()
    with farm.services.uow.write() as repos:
        # The other one has claimed its step, and will see that the job is paused.
        assert repos.steps.claim(steps[1].id, "other", 60.0)
        together.start(lambda: run_step(steps[0].id, farm.services))
        together.join()
    assert [step.state for step in farm.steps(job.id)[-2:]] == [StepState.PAUSED, StepState.LEASED]


def test_two_jobs_end_their_searches_and_wake_each_other(farm: Farm) -> None:
    both_have_cancelled = threading.Barrier(2, timeout=300)
    jobs = [tuning(farm, 2, seed)[0] for seed in range(2)]

    def end(job: Job) -> None:
        with farm.services.uow.write() as repos:
            repos.jobs.get(job.id, lock=True)
            repos.steps.cancel_ready(job.id)
            both_have_cancelled.wait()
            wake_next(repos, job.device_key)

    together = Together()
    together.start(*(lambda job=job: end(job) for job in jobs))
    together.join()


def test_a_budget_changes_while_workers_are_at_the_steps(farm: Farm) -> None:
    """One track or another is always being ended: whoever waited for all of them would wait for long."""
    job, steps = tuning(farm, 2)
    together = Together()
    with farm.services.uow.write() as repos:
        repos.steps.lock_claimed(*_held(farm, steps[0]))
        together.start(lambda: change_job(farm.services, job.id, JobChange(budget={"trials": 128})))
        together.start(lambda: resume_job(farm.services, job.id))
        together.join()
    assert farm.job(job.id).budget["trials"] == 128


def _held(farm: Farm, step: Step) -> tuple[str, int]:
    (mine,) = claimed(farm, [step])
    return mine.id, mine.fence


def test_the_reaper_skips_locked_steps(farm: Farm) -> None:
    """A user pauses the job: the transaction holds one step, and wants the other."""
    _, steps = tuning(farm, 2)
    expire(farm, claimed(farm, steps))
    together = Together()
    with farm.services.uow.write() as repos:
        repos.steps.mark_sent([steps[1].id])
        together.start(lambda: reap(farm.services))
        together.join()
    assert [step.state for step in farm.steps(steps[0].subject_id)[-2:]] == [
        StepState.READY,
        StepState.LEASED,
    ]


def test_two_reconcilers_reap_steps_of_the_same_jobs(farm: Farm) -> None:
    first, second = (tuning(farm, 0, seed)[0] for seed in range(2))
    with farm.services.uow.write() as repos:
        steps = [plan(repos, job, 0) for job in (second, first)]
    expire(farm, claimed(farm, steps))
    together = Together()
    with farm.services.uow.write() as repos:  # as the other one does
        repos.events.add(first.id, "retry", {})
        together.start(lambda: reap(farm.services))
        wait_for_lock(farm)
        repos.events.add(second.id, "retry", {})
    together.join()


def expire(farm: Farm, steps: list[Step]) -> None:
    with farm.services.uow.engine.begin() as connection:
        for step in steps:
            connection.exec_driver_sql("UPDATE steps SET lease_until = 1.0 WHERE id = %s", (step.id,))


def test_a_step_planned_while_its_job_was_paused_and_resumed_goes_on(farm: Farm) -> None:
    job, _ = tuning(farm, 2)
    with farm.services.uow.write() as repos:
        repos.steps.pause(job.id)
        repos.jobs.move(job.id, JobState.PAUSED)
        late = plan(repos, job, 2)
    together = Together()
    with farm.services.uow.write() as repos:
        repos.jobs.get(job.id, lock=True)
        together.start(lambda: resume_job(farm.services, job.id))
        wait_for_lock(farm)
        together.start(lambda: run_step(late.id, farm.with_engine(_Cancelling()).services))
        wait_until(
            lambda: farm.steps(job.id)[-1].state is StepState.PAUSED or _waits_for_lock(farm, 2), "the worker"
        )
    together.join()
    assert farm.job(job.id).state is JobState.TUNING
    assert StepState.PAUSED not in {step.state for step in farm.steps(job.id)}


def _waits_for_lock(farm: Farm, waiters: int) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with farm.services.uow.engine.begin() as connection:
        return bool(connection.exec_driver_sql(query).scalar_one() >= waiters)


class _Cancelling:
    """An engine whose work is over at once."""

    @property
    def toolchain(self) -> str:
        raise CancelledError("enough")

    def serve(self, owner: str | None) -> None: ...


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("last", ["paused", "resumed"])
def test_pausing_and_resuming_at_once_leaves_no_step_behind(farm: Farm, last: str) -> None:
    job, _ = tuning(farm, 3)

    def often(deed: Callable[..., object]) -> Callable[[], None]:
        def body() -> None:
            for _ in range(40):
                try:
                    deed(farm.services, job.id)
                except TunefarmError as error:
                    assert error.code == "job-state", error  # noqa: PT017
                state, steps = _look(farm, job)
                assert state is not JobState.FAILED, steps

        return body

    together = Together()
    together.start(*(often(pause_job) for _ in range(2)), *(often(resume_job) for _ in range(2)))
    together.join()
    if last == "paused":
        pause_job(farm.services, job.id)
    state, steps = _look(farm, job)
    assert set(steps) == {StepState.PAUSED if state is JobState.PAUSED else StepState.READY}


def _look(farm: Farm, job: Job) -> tuple[JobState, list[StepState]]:
    with farm.services.uow.read() as repos:
        steps = [step.state for step in repos.steps.for_job(job.id) if step.kind is StepKind.TUNE]
        return repos.jobs.get(job.id).state, steps
