"""Several jobs on several devices, with pauses, changes and lost workers, on PostgreSQL."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm
from private_postgres import PrivatePostgres
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job
from tunefarm_app.operations.reconcile import reap, send_due
from tunefarm_app.steps.run import run_steps
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, StepState
from tunefarm_tuning.core.errors import ConflictError

DEVICES = 6
WORKERS = 8
DEEDS = 60
MOST_TRIALS = 400


@pytest.fixture
def server() -> Iterator[PrivatePostgres]:
    server = PrivatePostgres("fsync=off", "deadlock_timeout=100ms")
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def farm(server: PrivatePostgres, tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(
        farm_settings(
            tmp_path,
            database_url=server.url,
            device_retry_sec=0.05,
            max_step_attempts=10_000,  # leases are lost all the time
            step_chain_sec=1.0,
            step_turn_sec=0.1,
        )
    )
    yield farm
    farm.services.close()


class Crew:
    """Workers and a reconciler in threads; `errors` holds their exceptions."""

    def __init__(self, farm: Farm) -> None:
        self._farm = farm
        self._over = threading.Event()
        self.errors: list[BaseException] = []
        bodies = [self._work] * WORKERS + [self._reconcile]
        self._threads = [threading.Thread(target=self._run, args=(body,), daemon=True) for body in bodies]
        for thread in self._threads:
            thread.start()

    def _run(self, body: Callable[[], None]) -> None:
        while not self._over.wait(0.01):
            try:
                body()
            except Exception as error:
                self.errors.append(error)

    def _work(self) -> None:
        with suppress(IndexError):  # another one was faster
            run_steps(self._farm.inbox.messages.pop(0), self._farm.services)

    def _reconcile(self) -> None:
        reap(self._farm.services)
        send_due(self._farm.services, resend_after_sec=0.5)
        time.sleep(0.1)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def crew(farm: Farm) -> Iterator[Crew]:
    crew = Crew(farm)
    yield crew
    crew.close()


@pytest.mark.exhaustive
def test_jobs_end_as_they_should_whatever_is_done_to_them(server, farm, crew) -> None:
    model = farm.upload(Scenario(tasks=2, trial_sec=0.005))
    wait_until(lambda: farm.model(model.id).state == "ready", "the model")
    for number in range(DEVICES):
        farm.add_device(f"dev-{number}")
    jobs = [
        farm.submit(model, trials=40 if seed else 4000, round_size=4, seed=seed, priority=priority)
        for seed, priority in enumerate((0, 0, 0, 5, 9))
    ]
    doomed, rest = jobs[0], jobs[1:]
    chance = random.Random(4)
    for number in range(DEEDS):
        _do_something(farm, chance, doomed if number % 10 == 0 else chance.choice(rest))
        time.sleep(chance.uniform(0.0, 0.05))
    cancel_job(farm.services, doomed.id)
    for job in rest:
        with suppress(ConflictError):
            resume_job(farm.services, job.id)
    try:
        wait_until(
            lambda: all(farm.job(job.id).state.is_finished for job in jobs), "the jobs", within_sec=600
        )
    except AssertionError:
        for job in jobs:
            print(farm.job(job.id))
            for step in farm.steps(job.id):
                if step.state in ("ready", "leased", "paused"):
                    print("   ", step)
        raise
    finally:
        log = (server.folder / "log").read_text()
        print("".join(f"{line}\n" for line in log.splitlines() if "checkpoint" not in line)[-20000:])
    assert farm.job(doomed.id).state is JobState.CANCELLED
    for job in rest:
        _check(farm, job)
    # A worker whose round nobody needs any more gives its device back when it notices.
    wait_until(lambda: _all_devices_are_free(farm), "every device to be given back")
    assert "deadlock detected" not in log
    assert crew.errors == []


def _do_something(farm: Farm, chance: random.Random, job: Job) -> None:
    deeds: list[Callable[[], object]] = [
        lambda: pause_job(farm.services, job.id),
        lambda: resume_job(farm.services, job.id),
        lambda: resume_job(farm.services, job.id),
        lambda: _raise_budget(farm, job.id, chance.randrange(1, 9)),
        lambda: change_job(farm.services, job.id, JobChange(priority=chance.randrange(10))),
        lambda: _take_leases(farm, job.id, chance.randrange(1, 4)),
        lambda: _take_leases(farm, job.id, chance.randrange(1, 4)),
    ]
    with suppress(ConflictError):  # it has ended, say
        chance.choice(deeds)()


def _raise_budget(farm: Farm, job_id: str, trials: int) -> None:
    budget = min(farm.job(job_id).budget["trials"] + trials, MOST_TRIALS)
    change_job(farm.services, job_id, JobChange(budget={"trials": budget}))


def _take_leases(farm: Farm, job_id: str, most: int) -> None:
    """Let leases of steps run out, as if their workers had frozen."""
    held = [step.id for step in farm.steps(job_id) if step.state is StepState.LEASED][:most]
    for step_id in held:
        with farm.services.uow.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE steps SET lease_until = 1.0 WHERE id = %s AND state = 'leased'", (step_id,)
            )


def _check(farm: Farm, job: Job) -> None:
    done = farm.job(job.id)
    assert (done.state, done.stop_reason, done.error) == (JobState.SUCCEEDED, "trials", None)
    trials = farm.trials(job.id)
    assert done.trials == len(trials) == done.budget["trials"]
    assert len({(trial.position, trial.config_key) for trial in trials}) == len(trials)
    for step in farm.steps(job.id):
        assert step.state in (StepState.DONE, StepState.CANCELLED)
        assert step.in_flight is None
        assert step.lease_owner is None


def _all_devices_are_free(farm: Farm) -> bool:
    with farm.services.uow.read() as repos:
        return all(device.lease_owner is None for device in repos.devices.in_pool("pool"))
