"""Real Celery workers on a real broker: killed, restarted, disconnected."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Step, StepKind, StepState


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_complete(farm, job_id: str, trials: int) -> None:
    """The job has its trials, none of them twice, and each with one record."""
    job = farm.finished(job_id)
    assert job.state is JobState.SUCCEEDED, job.error
    rows = farm.trials(job_id)
    assert len(rows) == job.trials == trials
    assert len({(t.position, t.config_key) for t in rows}) == trials
    with farm.services.uow.read() as repos:
        records = repos.records.for_job(job_id)
        assert sum(not record.confirmed for record in records) == trials
        assert repos.artifacts.for_job(job_id) is not None


def leased(farm, job_id: str, kind: StepKind = StepKind.TUNE) -> Step | None:
    """The job's step of that kind that a worker is at, if there is one at this moment."""
    with farm.services.uow.read() as repos:
        steps = [s for s in repos.steps.for_job(job_id) if s.kind is kind and s.state is StepState.LEASED]
    return steps[0] if steps else None


def stop_between_transactions(pids: list[int], settings) -> None:
    """Stop processes, but not while they hold SQLite's one write lock: that would stop everybody."""
    path = settings.database_url.get_secret_value().removeprefix("sqlite:///")
    while True:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with closing(sqlite3.connect(path, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.rollback()
                return
            except sqlite3.OperationalError:
                wake(pids)
                time.sleep(0.05)


def wake(pids: list[int]) -> None:
    """Let stopped processes go on; some may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stop_in_a_round(farm, job_id: str, worker, settings) -> tuple[list[int], Step]:
    """Stop the worker while it is at a round of the job; return its processes, its main one first, and the step.

    Between two rounds nothing is leased, so what was read before the stop may no longer hold after it.
    """
    while True:
        farm.wait_until(lambda: leased(farm, job_id), "a round under way")
        pids = [worker.process.pid, *worker.descendants()]
        stop_between_transactions(pids, settings)
        step = leased(farm, job_id)
        if step is not None and owner_pid(step) in pids:
            return pids, step
        assert not farm.job(job_id).state.is_finished, "the job ended before a round of it was caught"
        wake(pids)


def owner_pid(step: Step) -> int:
    assert step.lease_owner is not None
    return int(step.lease_owner.split(":")[1])


def attempts(farm, step: Step) -> int:
    with farm.services.uow.read() as repos:
        return repos.steps.get(step.id).attempts


@pytest.mark.exhaustive
def test_a_job_through_a_real_worker(farm, start_worker, broker) -> None:
    worker = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=2, failing=0.1))
    farm.add_device()
    job = farm.submit(model, trials=40)
    assert_complete(farm, job.id, 40)
    assert worker.stop() == 0
    assert broker.password not in worker.log
    assert job.id in worker.log  # structured: each step's lines name its job
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    "kills", [pytest.param((8,), id="once"), pytest.param((8, 16), marks=pytest.mark.exhaustive, id="twice")]
)
def test_killing_the_worker_in_the_middle_of_a_job(
    farm, start_worker, settings, kills: tuple[int, ...]
) -> None:
    """Kill -9, each time with a round under way; the job completes, and nothing is recorded twice."""
    worker = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=2, trial_sec=0.1))
    farm.add_device()
    job = farm.submit(model, trials=64)
    for trials in kills:
        farm.wait_until(lambda at_least=trials: farm.job(job.id).trials >= at_least, "the first rounds")
        pids, step = stop_in_a_round(farm, job.id, worker, settings)
        below = pids[1:]
        assert below, "the worker has a pool"
        worker.kill()
        wake(below)  # what is at its end notices only while it runs
        farm.wait_until(lambda pids=below: not any(exists(pid) for pid in pids), "its pool to die with it")
        assert farm.job(job.id).state is JobState.TUNING
        worker = start_worker("--concurrency", "1")
        farm.wait_until(lambda step=step: attempts(farm, step) > 1, "the round under way to be tried again")
    assert_complete(farm, job.id, 64)


@pytest.mark.exhaustive
def test_killing_a_child_of_the_pool(farm, start_worker, settings) -> None:
    """The system kills the process that uses most memory."""
    worker = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=2, trial_sec=0.1))
    farm.add_device()
    job = farm.submit(model, trials=48)
    farm.wait_until(lambda: farm.job(job.id).trials >= 8, "the first round")
    pids, step = stop_in_a_round(farm, job.id, worker, settings)
    os.kill(owner_pid(step), signal.SIGKILL)
    wake(pids)
    assert_complete(farm, job.id, 48)
    assert attempts(farm, step) > 1, "the round under way was tried again"
    assert worker.process.poll() is None


@pytest.mark.exhaustive
def test_a_stopped_worker_that_wakes_up_late_writes_nothing(farm, start_worker, settings) -> None:
    """SIGSTOP for longer than the lease, as a machine that is suspended; another worker takes over meanwhile."""
    first = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=2, trial_sec=0.1))
    farm.add_device()
    job = farm.submit(model, trials=64)
    farm.wait_until(lambda: farm.job(job.id).trials >= 8, "the first round")
    stopped, step = stop_in_a_round(farm, job.id, first, settings)
    start_worker("--concurrency", "1")
    assert_complete(farm, job.id, 64)
    assert attempts(farm, step) > 1, "the round under way was taken over"
    wake(stopped)
    farm.wait_until(lambda: "late write rejected" in first.log, "the late worker to be turned away")
    assert_complete(farm, job.id, 64)


def test_the_broker_dies_and_forgets(farm, start_worker, broker) -> None:
    """The broker loses its data and is away for some seconds; the database knows which steps are due."""
    worker = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=2, trial_sec=0.02))
    farm.add_device()
    job = farm.submit(model, trials=64)
    farm.wait_until(lambda: farm.job(job.id).trials >= 8, "the first round")
    broker.kill()
    second = farm.submit(model, trials=16, seed=1)  # is taken all the same
    assert farm.job(second.id).state is JobState.QUEUED
    broker.start()
    assert_complete(farm, job.id, 64)
    assert_complete(farm, second.id, 16)
    assert worker.stop() == 0
    assert broker.password not in worker.log


def test_cancelling_stops_a_round_under_way(farm, start_worker) -> None:
    start_worker("--concurrency", "1")
    slow, quick = (farm.ready_model(Scenario(tasks=1, trial_sec=trial_sec)) for trial_sec in (1.0, 0.0))
    farm.add_device()
    job = farm.submit(slow, trials=10_000)
    farm.wait_until(lambda: farm.job(job.id).progress.get("phase") == "tuning", "the search to begin")
    farm.wait_until(lambda: leased(farm, job.id), "a round under way")
    assert cancel_job(farm.services, job.id).state is JobState.CANCELLED

    def device_is_free() -> bool:
        with farm.services.uow.read() as repos:
            return repos.devices.in_pool("pool")[0].lease_owner is None

    farm.wait_until(device_is_free, "the worker to give its device back")
    after = farm.submit(quick, trials=8, seed=5)
    assert_complete(farm, after.id, 8)
    assert farm.job(job.id).state is JobState.CANCELLED


@pytest.mark.exhaustive
def test_pausing_stops_a_round_under_way_and_outlives_the_worker(farm, start_worker) -> None:
    worker = start_worker("--concurrency", "1")
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, trial_sec=0.1)), trials=10_000)
    farm.wait_until(lambda: farm.job(job.id).trials > 0, "the first round to end")
    farm.wait_until(lambda: leased(farm, job.id), "a round under way")
    paused = pause_job(farm.services, job.id)

    def device_is_free() -> bool:
        with farm.services.uow.read() as repos:
            return repos.devices.in_pool("pool")[0].lease_owner is None

    farm.wait_until(device_is_free, "the worker to give its device back")
    worker.kill()
    start_worker("--concurrency", "1")
    still = farm.job(job.id)
    assert (still.state, still.trials, still.tuned_sec) == (JobState.PAUSED, paused.trials, paused.tuned_sec)
    resume_job(farm.services, job.id)
    farm.wait_until(lambda: farm.job(job.id).trials > paused.trials, "the search to go on")
    assert cancel_job(farm.services, job.id).state is JobState.CANCELLED


@pytest.mark.exhaustive
def test_stopping_a_worker_hands_its_step_to_the_next(farm, start_worker, environment) -> None:
    environment["TUNEFARM_LEASE_SEC"] = "3600"  # nothing comes back by its lease
    environment["TUNEFARM_DRAIN_SEC"] = "0.5"
    worker = start_worker("--concurrency", "1")
    model = farm.ready_model(Scenario(tasks=0, compile_sec=3600.0))
    farm.add_device()
    job = farm.submit(model, trials=8)
    farm.wait_until(lambda: farm.job(job.id).progress.get("step"), "the compiler to work")
    first = leased(farm, job.id, StepKind.COMPILE)
    assert first is not None
    assert worker.stop() == 0
    assert "step handed back" in worker.log
    start_worker("--concurrency", "1")
    farm.wait_until(lambda: leased(farm, job.id, StepKind.COMPILE), "the next worker to take the step")
    second = leased(farm, job.id, StepKind.COMPILE)
    assert second is not None
    assert (second.id, second.fence, second.attempts) == (first.id, first.fence + 1, 1)
    assert cancel_job(farm.services, job.id).state is JobState.CANCELLED
