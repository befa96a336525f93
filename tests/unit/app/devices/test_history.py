"""The history of devices: how long and how finely it is kept, and what calibrations record."""

from __future__ import annotations

from typing import Any

import pytest
from app_farm import Farm
from sqlalchemy import text

from tunefarm_app.devices import calibration as device_calibration
from tunefarm_app.devices.history import Span, intervals_of, thin_device_history, vitals_of
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import Device
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.calibration import CalibrationRun

DAY_SEC = 86_400.0


def slots(farm: Farm) -> list[tuple[int, float]]:
    """Return how wide each slot is, and how long a step held the device in it, oldest first."""
    query = text("SELECT width_sec, work_sec FROM device_slots ORDER BY slot_at")
    with farm.services.uow.engine.connect() as connection:
        return [(row[0], row[1]) for row in connection.execute(query)]


def use(farm: Farm, device: Device, *, days_ago: float, sec: float = 1800.0) -> None:
    with farm.services.uow.write() as repos:
        began_at = (repos.now() - days_ago * DAY_SEC) // 900 * 900
        repos.device_slots.use(device.id, began_at, began_at + sec, work_sec=1.0)


def test_old_intervals_are_widened_and_deleted(farm: Farm) -> None:
    devices = [farm.add_device(f"dev-{number}") for number in range(3)]
    for device in devices:
        for days_ago in (100.0, 5.0, 0.5):
            use(farm, device, days_ago=days_ago)
    assert len(slots(farm)) == 3 * 3 * 30
    thin_device_history(farm.services)
    shown = slots(farm)
    assert [interval for interval in shown if interval[0] == 900] == [(900, 900.0)] * 6
    assert len([interval for interval in shown if interval[0] == 60]) == 3 * 30
    assert thin_device_history(farm.services) == 0


def test_what_a_removed_device_did_is_not_kept_for_ever(farm: Farm) -> None:
    device = farm.add_device()
    for days_ago in (100.0, 5.0):
        use(farm, device, days_ago=days_ago)
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.REMOVE)
    thin_device_history(farm.services)
    assert slots(farm) == [(900, 900.0)] * 2


def test_changes_and_calibrations_go_as_well(farm: Farm) -> None:
    device = farm.add_device()
    with farm.services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE device_changes SET created_at = created_at - 10 * 86400"))
    Reconciler(farm.with_settings(keep_device_history_days=11.0).services).tick()
    with farm.services.uow.read() as repos:
        assert len(repos.device_history.changes(device.id).items) == 3
    Reconciler(farm.with_settings(keep_device_history_days=9.0).services).tick()
    with farm.services.uow.read() as repos:
        assert repos.device_history.changes(device.id).items == ()


def test_however_much_is_too_old_goes_at_once(farm: Farm) -> None:
    """Else a large farm, whose devices are calibrated all the time, would keep ever more."""
    device = farm.add_device()
    with farm.services.uow.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO calibrations (id, device_id, outcome, reason, created_at) "
                "VALUES (:id, :device_id, 'clean', '', 1.0)"
            ),
            [{"id": f"cal_{number}", "device_id": device.id} for number in range(2500)],
        )
    assert thin_device_history(farm.services) == 2500
    with farm.services.uow.read() as repos:
        assert repos.device_history.calibrations(device.id).items == ()


def test_a_span_shows_the_fine_and_the_wide_alike(farm: Farm) -> None:
    device = farm.add_device()
    for days_ago in (3.0, 0.2):
        use(farm, device, days_ago=days_ago)
    for span, seen in ((Span.HOUR, 0.0), (Span.DAY, 1800.0), (Span.WEEK, 3600.0), (Span.MONTH, 3600.0)):
        for _ in range(2):
            with farm.services.uow.read() as repos:
                shown = intervals_of(repos, device, span)
            assert sum(interval.work_sec for interval in shown) == pytest.approx(seen)
            thin_device_history(farm.services)


def test_a_job_leaves_the_use_of_its_device(farm: Farm) -> None:
    device = farm.add_device()
    farm.submit(farm.ready_model(), trials=16)
    farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        shown = intervals_of(repos, farm.device(device.id), Span.HOUR)
        measured_sec, outcomes = repos.counters.of_device(device.id)
    assert sum(outcomes.values()) == 16
    work_sec = sum(interval.work_sec for interval in shown)
    assert 0.0 < sum(interval.measured_sec for interval in shown) <= min(work_sec, measured_sec) + 1e-6
    assert sum(interval.calibration_sec for interval in shown) == 0.0


class Kernel:
    """A calibration kernel with results that a test chooses."""

    def __init__(self) -> None:
        self.does: list[CalibrationRun | Exception] = []

    def __call__(self, device: Device) -> CalibrationRun:
        does = self.does[0] if len(self.does) == 1 else self.does.pop(0)
        if isinstance(does, Exception):
            raise does
        return does


def test_each_calibration_is_kept_with_its_results(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_calibration, "_PAUSE_SEC", 0.0)
    kernel = Kernel()
    farm = farm.with_settings(calibrate_every_sec=600.0, calibrate_retry_sec=1e-6).with_engine(
        ReplayEngine(calibrate=kernel)
    )
    device = farm.newcomer()

    def run(does: CalibrationRun | Exception) -> None:
        kernel.does = [does]
        with farm.services.uow.engine.begin() as connection:
            connection.execute(text("UPDATE devices SET calibrate_at = 1.0"))
        assert farm.calibrate() == 1

    run(CalibrationRun(key="k", time_sec=1e-3))
    run(CalibrationRun(key="k", time_sec=3e-3))
    run(CalibrationRun(key="k", time_sec=1e-3, wrong="2 is not 3"))
    run(InvalidInputError("this worker has no linker"))
    with farm.services.uow.read() as repos:
        kept = repos.device_history.calibrations(device.id).items
        states = [change.state.value for change in repos.device_history.changes(device.id).items]
    calibrations = [
        (calibration.outcome.value, calibration.time_sec, calibration.reference_sec)
        for calibration in reversed(kept)
    ]
    assert calibrations == [
        ("clean", 1e-3, 1e-3),
        ("drift", 3e-3, 1e-3),
        ("wrong", 1e-3, 1e-3),
        ("broken", None, None),
    ]
    assert "3.00 ms instead of 1.00 ms" in kept[2].reason
    assert "no linker" in kept[0].reason
    assert states == ["quarantined", "online", "checking", "offline"]
    with farm.services.uow.read() as repos:
        assert any(interval.calibration_sec > 0.0 for interval in intervals_of(repos, device, Span.HOUR))


def test_signs_of_life_leave_their_vitals(farm: Farm) -> None:
    device = farm.add_device()
    for info in ({"agent": {"load": [2.0], "temperature_celsius": 50.0}}, {"agent": "?"}, None):
        heartbeat(farm.services, device.id, info=info)
    with farm.services.uow.read() as repos:
        shown = intervals_of(repos, device, Span.HOUR)
    assert sum(interval.beats for interval in shown) == 3
    assert {
        interval.temperature_celsius for interval in shown if interval.temperature_celsius is not None
    } == {50.0}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, (None, None, None)),
        ({"agent": []}, (None, None, None)),
        ({"agent": {"load": [1.5, 1], "temperature_celsius": 60, "clock_mhz": 3000}}, (1.5, 60.0, 3000.0)),
        ({"agent": {"load": ["x"], "temperature_celsius": True, "clock_mhz": 1e300}}, (None, None, None)),
        ({"agent": {"load": [float("nan")], "clock_mhz": float("inf")}}, (None, None, None)),
        ({"agent": {"temperature_celsius": 60, "gpus": [{"temperature_celsius": 71}]}}, (None, 71.0, None)),
        ({"agent": {"temperature_celsius": 60, "gpus": [{"clock_mhz": 900}]}}, (None, 60.0, 900.0)),
        ({"agent": {"gpus": [1]}}, (None, None, None)),
    ],
)
def test_vitals_from_agents(info: dict[str, Any], expected: tuple[float | None, ...]) -> None:
    vitals = vitals_of(info)
    assert (vitals.load, vitals.temperature_celsius, vitals.clock_mhz) == expected
