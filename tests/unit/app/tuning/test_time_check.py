"""A peak that a kernel exceeds is measured again during the search, but not over and over."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_farm import Farm
from sqlalchemy import text

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Device, DeviceState, Job

TERMS = {"tuner": "random", "round_size": 8}
AGO_SEC = 3600.0


def submitted(farm: Farm, *, trials: int) -> Job:
    return farm.submit(farm.ready_model(Scenario(tasks=1)), trials=trials, **TERMS)  # type: ignore[arg-type]


def rate_of_first_round(farm: Farm, folder: Path) -> float:
    """Return the highest rate of the first round of such a job, as another farm with the same landscape tells."""
    twin = farm.empty_twin(folder)
    twin.add_device()
    job = submitted(twin, trials=8)
    twin.run_until_quiet()
    with twin.services.uow.read() as repos:
        (task,) = repos.jobs.tasks(job.id)
        (facts,) = repos.models.tasks(job.model_id)
    twin.services.close()
    assert task.best_cost_sec is not None
    return facts.flops / task.best_cost_sec


def measured_at(farm: Farm, device: Device) -> float:
    with farm.services.uow.read() as repos:
        peak = repos.peaks.get(device.id)
    assert peak is not None
    return peak.measured_at


@pytest.mark.parametrize(
    ("share", "ago_sec", "is_doubted"), [(0.5, AGO_SEC, True), (0.95, AGO_SEC, False), (0.5, 60.0, False)]
)
def test_an_exceeded_peak_is_measured_again(
    farm: Farm, tmp_path: Path, *, share: float, ago_sec: float, is_doubted: bool
) -> None:
    rate = rate_of_first_round(farm, tmp_path)
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=share * rate / 2)  # twice as much on both cores
    with farm.services.uow.write() as repos:
        repos._connection.execute(
            text("UPDATE device_peaks SET measured_at = measured_at - :sec"), {"sec": ago_sec}
        )
    before = measured_at(farm, device)
    job = submitted(farm, trials=16)
    farm.with_settings(step_chain_sec=0.0).run(steps=2)
    assert farm.job(job.id).trials == 8, "the round counts in any case"
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert measured_at(farm, device) == (0.0 if is_doubted else before)
