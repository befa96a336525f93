"""PostgreSQL stops repeatedly without warning under a farm at work."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest
from private_postgres import PrivatePostgres
from soak_audit import audit
from soak_farm import soak_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Job

# workers, jobs, rounds of each, stops
SIZES = {"small": (1, 1, 8, 2), "middle": (2, 3, 25, 5), "big": (3, 10, 50, 20)}
# "Immediate" shutdown: no checkpoint; and the main process killed, which its children notice by and by.
HOW = (signal.SIGQUIT, signal.SIGKILL)


@pytest.fixture
def postgres() -> Iterator[PrivatePostgres]:
    server = PrivatePostgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_work_goes_on_when_the_database_is_back(
    tmp_path, postgres: PrivatePostgres, size, rng: random.Random, report
) -> None:
    num_workers, num_jobs, rounds, stops = SIZES[size]
    with soak_farm(tmp_path / "farm", postgres.url, workers=num_workers, devices=num_workers) as farm:
        model = farm.ready_model(Scenario(tasks=2, trial_sec=0.02))
        jobs = [farm.submit(model, trials=rounds, seed=seed) for seed in range(num_jobs)]

        def submit() -> Job:
            return farm.submit(model, trials=rounds, seed=len(jobs))

        for number in range(stops):
            jobs.extend(farm.see_work(submit))
            postgres.signal(HOW[number % len(HOW)])
            time.sleep(rng.random() * 2.0)
            postgres.start()
        farm.finish()
        report(audit(farm, trials=rounds * len(jobs), stops=stops, workers=num_workers))
