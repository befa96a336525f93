"""Workers are killed at any moment: nothing is lost or recorded twice, on both databases."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import StepKind, StepState

STEPS = 100
WORKERS = 3
KILLS = 8
WAIT_SEC = 300.0

# Claims whatever is due, works a moment, and commits a trial together with the step's end.
WORKER = """
import random, sys, time
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import NewTrial
from tunefarm_tuning.core.errors import LeaseLostError

uow = UnitOfWork(make_engine(sys.argv[1]))
print("up", flush=True)
while True:
    with uow.write() as repos:
        due = repos.steps.due(8)
        step = repos.steps.claim(random.choice(due).id, "w", 1.0, max_attempts=1000) if due else None
    if step is None:
        time.sleep(0.05)
        continue
    time.sleep(random.random() * 0.3)
    trial = NewTrial(
        position=0, ordinal=0, config_key=f"{step.round}/{step.fence}", asked_key="a", outcome="ok", cost_sec=1.0,
        message="", build_sec=0.0, run_sec=0.0, measured_at=0.0,
    )
    try:
        with uow.write() as repos:
            repos.events.add(step.job_id, "round", {"round": step.round})
            repos.trials.add_many(step.job_id, step.round, [trial])
            repos.steps.finish(step.id, step.fence)
    except LeaseLostError:
        pass
"""


def start_worker(url: str) -> subprocess.Popen[str]:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "up\n"
    return worker


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


@pytest.mark.exhaustive
def test_nothing_is_lost_and_nothing_is_recorded_twice(database_url: str) -> None:
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    uow = UnitOfWork(engine)
    with uow.write() as repos:
        model = repos.models.add(name="m", sha256="0" * 64, size_bytes=1)
        job = repos.jobs.add(
            model_id=model.id, target={}, target_key="t", device_key="d", tuner="xgb", seed=0, budget={}
        )
    rng = random.Random(7)
    workers = [start_worker(database_url) for _ in range(WORKERS)]
    with uow.write() as repos:
        for round_ in range(STEPS):
            repos.steps.add(StepKind.TUNE, subject_id=job.id, model_id=model.id, job_id=job.id, round=round_)
    kills = 0
    deadline = time.monotonic() + WAIT_SEC
    try:
        while True:
            with uow.write() as repos:
                repos.steps.reap_expired(1000)
                left = repos.statistics.open_steps()
            if not left:
                break
            assert time.monotonic() < deadline, left
            if kills < KILLS:
                victim = rng.randrange(WORKERS)
                end(workers[victim])
                workers[victim] = start_worker(database_url)
                kills += 1
            time.sleep(0.2)
    finally:
        for worker in workers:
            end(worker)
    with uow.read() as repos:
        assert {step.state for step in repos.steps.for_job(job.id)} == {StepState.DONE}
        trials = repos.trials.of_task(job.id, 0)
        assert [trial.round for trial in trials] == list(range(STEPS))
        events = repos.events.after(job.id)
        assert [event.seq for event in events] == list(range(1, STEPS + 1))
        assert sorted(event.data["round"] for event in events) == list(range(STEPS))
    engine.dispose()
    assert kills > 0
