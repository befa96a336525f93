"""Jobs whose pages are looked at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from app_farm import Farm, make_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.settings import Settings
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job
from tunefarm_tuning.search.budget import Budget


@pytest.fixture(scope="module")
def searched(
    settings_in: Callable[[Path], Settings], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The folder of a farm that has done a job, and the job's ID: tests get copies, since a search takes a second."""
    folder = tmp_path_factory.mktemp("searched")
    farm = make_farm(settings_in(folder))
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=3, failing=0.2, seed=5)), trials=60, tuner="random")
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    farm.services.close()
    return folder, job.id


@pytest.fixture
def farm(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[Farm]:
    """A farm; one that has done a job where the test asks for that job."""
    if "searched" in request.fixturenames:
        shutil.copytree(request.getfixturevalue("searched")[0], tmp_path, dirs_exist_ok=True)
    farm = make_farm(settings)
    yield farm
    farm.services.close()


@pytest.fixture
def done(searched: tuple[Path, str], farm: Farm) -> Job:
    return farm.job(searched[1])


@pytest.fixture
def running(farm: Farm) -> Job:
    farm.add_device()
    job = farm.submit(farm.ready_model(), budget=Budget(trials=80, wall_sec=600), tuner="random")
    farm.run(steps=3)
    return farm.job(job.id)
