"""Jobs whose pages are looked at."""

from __future__ import annotations

import pytest

from tunefarm_app.engines.replay import Scenario
from tunefarm_db.states.job import JobState
from tunefarm_tuning.search.budget import Budget


@pytest.fixture
def done(farm):
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=3, failing=0.2, seed=5)), trials=60, tuner="random")
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return farm.job(job.id)


@pytest.fixture
def running(farm):
    farm.add_device()
    job = farm.submit(farm.ready_model(), budget=Budget(trials=80, wall_sec=600), tuner="random")
    farm.run(steps=3)
    return farm.job(job.id)
