"""A device that is lost in its calibration is away: nothing is known to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from app_farm import Farm

from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.calibration import CalibrationRun

AWAY = DeviceLostError("its agent died", away=True)


@dataclass
class Kernel:
    """Runs well, or fails as a test wants it."""

    error: Exception | None = None

    def __call__(self, device: Device) -> CalibrationRun:
        if self.error is not None:
            raise self.error
        return CalibrationRun(key="k", time_sec=1e-3)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def farm(farm: Farm, kernel: Kernel) -> Farm:
    return farm.with_settings(calibrate_every_sec=600.0, calibrate_retry_sec=1e-6).with_engine(
        ReplayEngine(calibrate=kernel)
    )


def test_it_is_offline_and_calibrated_when_it_is_back(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = AWAY
    farm.calibrate()
    lost = farm.device(device.id)
    assert (lost.state, lost.reason) == (DeviceState.OFFLINE, "lost in its calibration: its agent died")
    assert lost.lease_owner is None
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.OFFLINE, "nobody asks before it is back"
    kernel.error = None
    heartbeat(farm.services, device.id)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_one_that_is_lost_in_each_calibration_is_quarantined(farm: Farm, kernel: Kernel) -> None:
    """It may be the calibration that brings it down, as on a board with a weak power supply."""
    device = farm.newcomer()
    kernel.error = AWAY
    states = []
    for _ in range(4):
        farm.calibrate()
        states.append(farm.device(device.id).state)
        heartbeat(farm.services, device.id)
    assert states == [*[DeviceState.OFFLINE] * 3, DeviceState.QUARANTINED]
    kernel.error = None
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_one_in_quarantine_stays_there(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = DeviceLostError("its session crashed")
    farm.calibrate()
    kernel.error = AWAY
    farm.calibrate()
    lost = farm.device(device.id)
    assert (lost.state, lost.reason) == (
        DeviceState.QUARANTINED,
        "the calibration failed: its session crashed",
    )
    kernel.error = None
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
