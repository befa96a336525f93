"""A farm in one process, without a compiler; see `tests/support/farm/app_farm.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.settings import Settings
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return farm_settings(
        tmp_path,
        device_retry_sec=0.01,
        max_step_attempts=3,
        lease_sec=30.0,
    )


@pytest.fixture
def farm(settings: Settings) -> Iterator[Farm]:
    farm = make_farm(settings)
    yield farm
    farm.services.close()


@pytest.fixture
def tuning_job(farm: Farm) -> Job:
    """A job whose next step is its first round."""
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    job = farm.submit(model, trials=24)
    farm.run(steps=1)
    assert farm.job(job.id).state is JobState.TUNING
    return job
