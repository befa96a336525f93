"""Many workers, killed at random, on either database: nothing is lost, and nothing is recorded twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_farm import farm_settings, make_farm
from sqlalchemy import text
from waiting import wait_until

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer
from tunefarm_app.jobs.again import run_again
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job
from tunefarm_app.jobs.submit import SubmittedJob
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_app.steps.run import run_steps
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceState, Job, StepState
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.measure.interfaces import Failure
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

PAUSES = 8


class Killed(BaseException):
    """Stands in for SIGKILL in a thread: nothing catches it, and the step stays leased."""


def _with_noise(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
    """Answer like the landscape, with enough noise that winners are uncertain."""
    answer = landscape_answer(task, config)
    return (
        answer
        if isinstance(answer, Failure)
        else tuple(s * f for s, f in zip(answer, (0.9, 1.0, 1.1), strict=True))
    )


class Perilous(ReplayEngine):
    """Dies in the middle of some rounds, and watches that no device is used by two at once."""

    def __init__(self, seed: int) -> None:
        super().__init__(_with_noise)
        self._random = random.Random(seed)
        self._busy: set[str] = set()
        self.overlaps: list[str] = []
        self.deaths = 0

    @contextmanager
    def measuring(self, device, *, cancellation):
        if device.id in self._busy:
            self.overlaps.append(device.id)
        self._busy.add(device.id)
        try:
            with super().measuring(device, cancellation=cancellation) as option:
                if self._random.random() < 0.15:
                    self.deaths += 1
                    raise Killed
                yield option
        finally:
            self._busy.discard(device.id)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return farm_settings(
        tmp_path,
        database_url=database_url,
        device_retry_sec=0.2,
        device_stale_sec=3600.0,
        lease_sec=60.0,  # no lease of the living may end, however busy the machine is; `let_leases_end`
        step_chain_sec=1.0,
        max_step_attempts=50,
        round_size=4,
    )


@pytest.fixture
def farm(settings: Settings) -> Iterator[Any]:
    farm = make_farm(settings, Perilous(seed=1))
    yield farm
    farm.services.close()


def let_leases_end(services: Services) -> None:
    """Let the time pass that the leases of this owner, who is dead, still have."""
    while True:
        try:
            with services.uow.write() as repos:
                repos._connection.execute(
                    text("UPDATE steps SET lease_until = 1 WHERE state = 'leased' AND lease_owner = :owner"),
                    {"owner": services.owner},
                )
            return
        except TransientError:
            continue


def work(farm: Any, stop: threading.Event, name: str = "worker") -> None:
    """Be a worker, and another one after each death."""
    services = replace(farm.services, owner=name)
    while not stop.is_set():
        try:
            step_id = farm.inbox.messages.pop(0)
        except IndexError:
            time.sleep(0.01)
            continue
        try:
            run_steps(step_id, services)
        except (Killed, TransientError):  # the latter where the database was busy for too long
            let_leases_end(services)


@pytest.mark.matrix(every=2)
def test_nothing_is_lost_and_nothing_twice(farm: Any) -> None:
    model = farm.upload(Scenario(tasks=3, failing=0.1))
    farm.run()
    farm.add_device("dev-1")
    farm.add_device("dev-2")
    jobs = [farm.submit(model, trials=40, seed=seed) for seed in range(4)]
    unwanted = farm.submit(model, trials=4000, seed=99)
    stop = threading.Event()
    workers = [threading.Thread(target=work, args=(farm, stop, f"w{n}"), daemon=True) for n in range(3)]
    reconcilers = [Reconciler(farm.services, every_sec=0.1) for _ in range(2)]
    for helper in (*workers, *reconcilers):
        helper.start()
    try:
        wait_until(
            lambda: all(farm.job(job.id).state.is_finished for job in jobs),
            lambda: f"the end of {[farm.job(job.id) for job in jobs]}",
        )
        cancel_job(farm.services, unwanted.id)
    finally:
        stop.set()
        for worker in workers:
            worker.join(60)
        for reconciler in reconcilers:
            reconciler.stop()

    engine = farm.services.require_engine()
    assert engine.deaths > 0
    assert engine.overlaps == []
    confirmations = 0
    for job in map(farm.job, (job.id for job in jobs)):
        assert job.state is JobState.SUCCEEDED, job.error
        trials = farm.trials(job.id)
        assert len(trials) == job.trials == 40
        assert len({(t.position, t.config_key) for t in trials}) == 40
        with farm.services.uow.read() as repos:
            records = repos.records.for_job(job.id)
            assert sum(not record.confirmed for record in records) == 40
            tasks = repos.jobs.tasks(job.id)
            assert sum(task.trials for task in tasks) == 40
            events = repos.events.after(job.id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        confirmed = [event.data for event in events if event.kind == "confirmed"]
        assert sum(sum(data["outcomes"].values()) for data in confirmed) == sum(r.confirmed for r in records)
        assert len(confirmed) == sum(task.confirmations for task in tasks)
        confirmations += len(confirmed)
    assert confirmations > 0
    assert farm.job(unwanted.id).state is JobState.CANCELLED
    with farm.services.uow.read() as repos:
        for device in repos.devices.in_pool("pool"):
            assert device.state is DeviceState.ONLINE


@pytest.mark.matrix(every=2, each_value=False)
def test_pausing_against_committing(farm: Any) -> None:
    """A job is paused at random moments of its rounds, stops each time, and ends with all its trials."""
    farm = farm.with_engine(ReplayEngine()).with_settings(step_chain_sec=0.0, device_retry_sec=0.01)
    model = farm.upload(Scenario(tasks=1, trial_sec=0.01))
    farm.run()
    farm.add_device()
    job = farm.submit(model, trials=100_000)
    stop = threading.Event()
    workers = [threading.Thread(target=work, args=(farm, stop, f"w{n}"), daemon=True) for n in range(2)]
    reconciler = Reconciler(farm.services, every_sec=0.05)
    for helper in (*workers, reconciler):
        helper.start()
    rng = random.Random(0)
    try:
        for number in range(PAUSES):
            time.sleep(rng.random() * 0.5)
            paused = pause_job(farm.services, job.id)
            assert {step.state for step in farm.steps(job.id)} <= {StepState.DONE, StepState.PAUSED}
            time.sleep(rng.random() * 0.1)
            still = farm.job(job.id)
            assert (still.trials, still.tuned_sec) == (paused.trials, paused.tuned_sec)
            if number == PAUSES - 1:
                change_job(farm.services, job.id, JobChange(budget={"trials": still.trials + 10}))
            resume_job(farm.services, job.id)
        wait_until(lambda: farm.job(job.id).state.is_finished, lambda: f"the end of {farm.job(job.id)}")
    finally:
        stop.set()
        for worker in workers:
            worker.join(60)
        reconciler.stop()
    done = farm.job(job.id)
    assert (done.state, done.trials) == (JobState.SUCCEEDED, still.trials + 10)
    assert len({trial.config_key for trial in farm.trials(job.id)}) == done.trials


def test_runs_of_one_chain_that_are_asked_for_at_once_are_one_job(farm: Any) -> None:
    """Each of them names another job of the chain, as two schedules may."""
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    farm.add_device()
    chain = [farm.submit(model, trials=8)]
    for _ in range(3):
        cancel_job(farm.services, chain[-1].id)
        assert farm.job(chain[-1].id).state is JobState.CANCELLED
        chain.append(run_again(farm.services, chain[-1].id).job)
    at_once = threading.Barrier(4)
    cancel_job(farm.services, chain[-1].id)

    def ask(job: Job) -> SubmittedJob:
        at_once.wait()
        return run_again(farm.services, job.id)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, chain))
    assert len({answer.job.id for answer in answers}) == 1
    assert sorted(answer.created for answer in answers) == [False, False, False, True]


@pytest.mark.exhaustive
def test_cancelling_against_committing(farm: Any) -> None:
    """A job is cancelled at random moments of its rounds; it is cancelled then, and no step of it is left."""
    farm = farm.with_engine(ReplayEngine()).with_settings(step_chain_sec=0.0)
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    farm.add_device()
    rng = random.Random(0)
    for seed in range(6):
        job = farm.submit(model, trials=4000, seed=seed)
        stop = threading.Event()
        worker = threading.Thread(target=work, args=(farm, stop), daemon=True)
        worker.start()
        time.sleep(rng.random())
        cancel_job(farm.services, job.id)
        wait_until(
            lambda job=job: not any(step.state in ("ready", "leased") for step in farm.steps(job.id)),
            "the steps to end",
        )
        stop.set()
        worker.join(60)
        assert farm.job(job.id).state is JobState.CANCELLED
        with farm.services.uow.read() as repos:
            assert len(repos.records.for_job(job.id)) == farm.job(job.id).trials
