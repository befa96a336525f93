"""A device's peak is measured when it joins, seldom afterwards, and never delays its work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from app_farm import Farm
from sqlalchemy import text
from waiting import wait_until

from tunefarm_app.devices.calibration import ask_for_calibrations, calibrate_device
from tunefarm_app.devices.peak import known_peak, peaks_of
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.core.errors import DeviceLostError, InvalidInputError
from tunefarm_tuning.measure.calibration import CalibrationRun
from tunefarm_tuning.measure.peak import Peak, Rate, peak_key
from tunefarm_tuning.target.target import Target


@dataclass
class Meter:
    """Returns the peaks that a test chooses."""

    one_core: float = 100e9
    all_cores: float = 180e9
    error: Exception | None = None
    runs: int = 0

    def __call__(self, device: Device) -> Peak:
        self.runs += 1
        if self.error is not None:
            raise self.error
        return Peak(
            key=peak_key(Target.from_json(device.target), device.device_model),
            threads=2,
            measured_at=1.0,
            flops_per_sec={"float32": Rate(one_core=self.one_core, all_cores=self.all_cores)},
        )


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def farm(farm: Farm, meter: Meter) -> Farm:
    return farm.with_settings(calibrate_every_sec=600.0, calibrate_retry_sec=1e-6).with_engine(
        ReplayEngine(peak=meter)
    )


def peak_of(farm: Farm, device: Device) -> Peak:
    with farm.services.uow.read() as repos:
        peak = known_peak(repos.peaks.get(device.id))
    assert peak is not None
    return peak


def peaks(farm: Farm, device: Device) -> dict[str, Peak]:
    with farm.services.uow.read() as repos:
        return peaks_of(repos, [device])


def calibrate_again(farm: Farm, device: Device) -> Device:
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")
    assert farm.calibrate() == 1
    return farm.device(device.id)


def age(farm: Farm, sec: float) -> None:
    with farm.services.uow.write() as repos:
        repos._connection.execute(
            text("UPDATE device_peaks SET measured_at = measured_at - :sec"), {"sec": sec}
        )


def test_it_is_measured_when_the_device_has_joined_and_then_seldom(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert peak_of(farm, device).flops_on(1, "float32") == 100e9
    assert peaks(farm, device) == {device.id: peak_of(farm, device)}
    for runs in (2, 3, 3, 3):  # whatever disturbed it when it came may be over by then
        calibrate_again(farm, device)
        assert (meter.runs, peak_of(farm, device).runs) == (runs, runs)
    age(farm, 21601.0)
    for _ in range(2):
        calibrate_again(farm, device)
        assert meter.runs == 4


def test_a_doubted_peak_is_measured_again_soon(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    for _ in range(3):
        calibrate_again(farm, device)
    assert meter.runs == 3
    meter.one_core = 150e9
    with farm.services.uow.write() as repos:
        repos.peaks.doubt(device.id)
    ask_for_calibrations(farm.services)
    assert farm.device(device.id).state is DeviceState.CHECKING
    assert farm.calibrate() == 1
    assert (meter.runs, peak_of(farm, device).flops_on(1, "float32")) == (4, 150e9)


def test_a_peak_of_all_cores_like_that_of_one_is_none_and_is_measured_again(farm: Farm, meter: Meter) -> None:
    meter.all_cores = 100e9
    device = farm.newcomer()
    farm.calibrate()
    for runs in (2, 3, 4, 5):
        calibrate_again(farm, device)
        assert meter.runs == runs
    shown = peaks(farm, device)[device.id]
    assert shown.flops_per_sec == {}
    assert (
        "float32: 100 GFLOP/s on 2 cores, hardly more than on one core: the device was busy" in shown.missing
    )
    meter.all_cores = 180e9
    for _ in range(2):
        calibrate_again(farm, device)
        assert meter.runs == 6
    assert peaks(farm, device)[device.id].flops_on(2, "float32") == 180e9


def test_two_threads_of_a_core_stay_as_they_are(farm: Farm, meter: Meter) -> None:
    meter.all_cores = 110e9
    device = farm.newcomer()
    farm.calibrate()
    for _ in range(14):
        calibrate_again(farm, device)
    assert meter.runs == 12
    assert peaks(farm, device)[device.id].flops_on(2, "float32") == 110e9


def test_of_each_figure_the_best_is_kept(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    meter.one_core, meter.all_cores = 90e9, 190e9
    age(farm, 1e6)
    calibrate_again(farm, device)
    peak = peak_of(farm, device)
    assert (peak.flops_on(1, "float32"), peak.flops_on(2, "float32")) == (100e9, 190e9)


def test_a_device_of_another_shape_is_measured_anew(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    meter.one_core = 50e9
    farm.newcomer(device_model="another-cpu")
    farm.calibrate()
    assert meter.runs == 2
    assert peak_of(farm, device).flops_on(1, "float32") == 50e9


def test_it_can_be_switched_off(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.with_settings(peak_every_sec=0.0).calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert meter.runs == 0
    assert peaks(farm, device) == {}


@pytest.mark.parametrize("error", [InvalidInputError("no linker", code="no-linker"), RuntimeError("no idea")])
def test_a_device_works_without_one(farm: Farm, meter: Meter, error: Exception) -> None:
    meter.error = error
    device = farm.newcomer()
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    missing = peak_of(farm, device)
    assert (missing.flops_per_sec, missing.missing) == ({}, str(error))
    meter.error = None
    calibrate_again(farm, device)
    assert meter.runs == 1, "not before its time"
    age(farm, 1e6)
    calibrate_again(farm, device)
    assert (peak_of(farm, device).missing, peak_of(farm, device).flops_on(2, "float32")) == ("", 180e9)


def test_what_was_known_outlives_a_failure(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    known = peak_of(farm, device)
    age(farm, 1e6)
    meter.error = RuntimeError("no idea")
    calibrate_again(farm, device)
    assert (meter.runs, peak_of(farm, device)) == (2, replace(known, runs=3)), (
        "not tried again before its time"
    )


def test_a_device_that_is_lost_over_it_is_calibrated_again_without_it(farm: Farm, meter: Meter) -> None:
    meter.error = DeviceLostError("its session crashed")
    device = farm.newcomer()
    farm.calibrate()
    lost = farm.device(device.id)
    assert (lost.state, lost.reason) == (
        DeviceState.QUARANTINED,
        "the calibration failed: its session crashed",
    )
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert meter.runs == 1
    assert peak_of(farm, device).missing == "its session crashed"


def test_the_peak_of_a_device_that_was_away_is_measured_when_it_is_back(farm: Farm, meter: Meter) -> None:
    """But not for ever: measuring it may be what takes the device away."""
    meter.error = DeviceLostError("its agent died", away=True)
    device = farm.newcomer()
    for runs in (1, 2, 3):
        farm.calibrate()
        assert farm.device(device.id).state is DeviceState.OFFLINE
        assert meter.runs == runs
        heartbeat(farm.services, device.id)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert (meter.runs, peak_of(farm, device).missing) == (3, "its agent died")


def test_a_peak_that_was_missed_once_is_measured_next_time(farm: Farm, meter: Meter) -> None:
    meter.error = DeviceLostError("its agent died", away=True)
    device = farm.newcomer()
    farm.calibrate()
    meter.error = None
    heartbeat(farm.services, device.id)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert (peak_of(farm, device).missing, peak_of(farm, device).flops_on(2, "float32")) == ("", 180e9)


def test_one_that_is_lost_over_it_later_is_let_in_as_well(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    known = peak_of(farm, device)
    meter.error = DeviceLostError("its session crashed")
    calibrate_again(farm, device)
    assert farm.device(device.id).state is DeviceState.QUARANTINED
    for _ in range(2):
        farm.calibrate()
        assert farm.device(device.id).state is DeviceState.ONLINE
        assert meter.runs == 2, "not before its time"
    assert peak_of(farm, device).flops_per_sec == known.flops_per_sec


def test_a_worker_that_stops_leaves_it_to_another(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()

    class Slow(ReplayEngine):
        def measure_peak(self, device: Device, *, cancellation: Any) -> Peak:
            wait_until(lambda: cancellation.cancelled, "the end of the hold")
            raise DeviceLostError("its child was closed")

    ask_for_calibrations(farm.services)
    stopping = replace(farm.with_engine(Slow()).services, draining=lambda: True)
    calibrate_device(*farm.inbox.calibrations.pop(), stopping)
    assert farm.device(device.id).state is DeviceState.CHECKING
    assert peaks(farm, device) == {}
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert meter.runs == 1


def test_a_wrong_answer_comes_before_everything(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    wrong = ReplayEngine(
        peak=meter, calibrate=lambda _: CalibrationRun(key="k", time_sec=1e-3, wrong="3 of 9 numbers")
    )
    farm.with_engine(wrong).calibrate()
    assert farm.device(device.id).state is DeviceState.QUARANTINED
    assert meter.runs == 0


def test_a_peak_that_another_release_wrote_is_none(farm: Farm, meter: Meter) -> None:
    device = farm.newcomer()
    farm.calibrate()
    with farm.services.uow.write() as repos:
        repos._connection.execute(text("UPDATE device_peaks SET peak = '{}'"))
    assert peaks(farm, device) == {}
    age(farm, 1e6)
    calibrate_again(farm, device)
    assert peak_of(farm, device).flops_on(1, "float32") == 100e9
