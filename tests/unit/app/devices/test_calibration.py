"""The calibration kernel admits devices, and rejects those that are wrong or slow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm
from sqlalchemy import text
from waiting import wait_until

from tunefarm_app.devices import calibration as device_calibration
from tunefarm_app.devices.calibration import ask_for_calibrations, calibrate_device
from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.remote_device import remote_device
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.tickets import GatewayWay
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.core.errors import (
    ConflictError,
    DeviceLostError,
    InvalidInputError,
    broke_protocol,
)
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.calibration import CalibrationRun
from tunefarm_tuning.measure.gpu.state import busy
from tunefarm_tuning.measure.interfaces import Failure


@dataclass
class Kernel:
    """The calibration kernel of a test: takes so long, is wrong, or fails."""

    time_sec: float = 1e-3
    wrong: str | None = None
    error: Exception | None = None
    times_sec: list[float] = field(default_factory=list)
    all_cores_sec: float | None = None
    clock_mhz: float | None = None
    runs: int = 0

    def __call__(self, device: Device) -> CalibrationRun:
        self.runs += 1
        if self.error is not None:
            raise self.error
        time_sec = self.times_sec.pop(0) if self.times_sec else self.time_sec
        return CalibrationRun(
            key="k",
            time_sec=time_sec,
            all_cores_sec=self.all_cores_sec,
            wrong=self.wrong,
            clock_mhz=self.clock_mhz,
        )


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(device_calibration, "_PAUSE_SEC", 0.0)
    return Kernel()


@pytest.fixture
def farm(farm: Farm, kernel: Kernel) -> Farm:
    """A farm that calibrates, and asks again at once."""
    return farm.with_settings(calibrate_every_sec=600.0, calibrate_retry_sec=1e-6).with_engine(
        ReplayEngine(calibrate=kernel)
    )


def test_a_device_is_calibrated_before_it_gets_work(farm: Farm) -> None:
    device = farm.newcomer(ready=False)
    assert device.state is DeviceState.OFFLINE
    assert farm.calibrate() == 0, "it cannot be measured on yet"
    assert heartbeat(farm.services, device.id).state is DeviceState.CHECKING
    assert farm.calibrate() == 1
    device = farm.device(device.id)
    assert (device.state, device.reason, device.lease_owner) == (DeviceState.ONLINE, "", None)
    assert device.calibration is not None
    assert (device.calibration["time_sec"], device.calibration["reference_sec"]) == (1e-3, 1e-3)
    assert farm.calibrate() == 0, "not before its time"


def test_a_gpus_clock_is_kept_for_its_measurements(farm: Farm, kernel: Kernel, tmp_path: Path) -> None:
    kernel.clock_mhz = 1980.0
    device = farm.newcomer()
    assert farm.calibrate() == 1
    device = farm.device(device.id)
    assert device.calibration is not None
    assert device.calibration["clock_mhz"] == 1980.0
    ensure_authority(tmp_path)
    way = GatewayWay(address="gateway:1", folder=tmp_path / "worker", check=lambda *_: None)
    assert remote_device(replace(device, by_gateway=True), way).clock_mhz == 1980.0


def test_records_say_what_the_calibration_said(farm: Farm) -> None:
    device = farm.newcomer()
    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, trials=4)
    farm.run(steps=2)
    assert farm.job(job.id).trials == 0, "it waits for the device"
    farm.calibrate()
    farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        records = repos.records.for_job(job.id)
    assert records
    assert {record.extra["calibration_sec"] for record in records if record.extra} == {1e-3}
    assert {record.device_id for record in records} == {device.id}


def test_a_wrong_answer_quarantines_at_once_and_a_clean_run_releases(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    kernel.wrong = "3 of 9 numbers"
    doubt(farm, device)
    farm.calibrate()
    sick = farm.device(device.id)
    assert sick.state is DeviceState.QUARANTINED
    assert sick.reason == "the calibration kernel computed a wrong result: 3 of 9 numbers"
    assert kernel.runs == 2
    with farm.services.uow.write() as repos:
        assert repos.devices.lease("pool", "step:x", 60.0) is None
    kernel.wrong = None
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_a_device_that_attacks_its_client_stays_out(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = broke_protocol("dev-1", "it sent a request")
    farm.calibrate()
    kernel.error = None
    farm.calibrate()
    held = farm.device(device.id)
    assert (held.state, held.held) == (DeviceState.QUARANTINED, True)
    assert "it sent a request" in held.reason


@pytest.mark.parametrize(("factor", "took"), [(2.0, "2.00 ms"), (0.5, "500 µs")])
def test_drift_quarantines(farm: Farm, kernel: Kernel, factor: float, took: str) -> None:
    device = farm.newcomer()
    farm.calibrate()
    kernel.time_sec *= factor
    doubt(farm, device)
    farm.calibrate()
    sick = farm.device(device.id)
    assert sick.state is DeviceState.QUARANTINED
    assert f"took {took} instead of 1.00 ms" in sick.reason
    assert kernel.runs == 4, "it was measured again before it was believed"
    assert sick.calibration is not None
    assert sick.calibration["time_sec"] == 1e-3, "the last clean one"
    kernel.time_sec = 1.2e-3
    farm.calibrate()
    well = farm.device(device.id)
    assert well.state is DeviceState.ONLINE
    assert well.calibration is not None
    assert (well.calibration["time_sec"], well.calibration["reference_sec"]) == (1.2e-3, 1e-3)


def test_a_disturbed_run_is_repeated(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    kernel.times_sec = [9e-3, 4e-3, 1.1e-3]
    doubt(farm, device)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE
    assert kernel.runs == 4


def test_a_newcomer_is_held_against_its_pool(farm: Farm, kernel: Kernel) -> None:
    for name in "abc":
        farm.newcomer(name)
    farm.calibrate()
    kernel.time_sec *= 3
    slow = farm.newcomer("slow")
    other = farm.newcomer("other", "another-pool")
    farm.calibrate()
    assert farm.device(slow.id).state is DeviceState.QUARANTINED
    assert farm.device(other.id).state is DeviceState.ONLINE


def test_a_person_who_releases_it_takes_it_as_it_is(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    kernel.time_sec *= 2
    doubt(farm, device)
    farm.calibrate()
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.RELEASE, "released", held=False)
    heartbeat(farm.services, device.id)
    farm.calibrate()
    well = farm.device(device.id)
    assert well.state is DeviceState.ONLINE
    assert well.calibration is not None
    assert well.calibration["reference_sec"] == 2e-3


def test_a_device_that_cannot_be_reached_is_tried_again(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = DeviceLostError("nobody at home")
    farm.calibrate()
    lost = farm.device(device.id)
    assert (lost.state, lost.reason) == (
        DeviceState.QUARANTINED,
        "the calibration failed: nobody at home",
    )
    kernel.error = None
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_a_gpu_that_somebody_uses_is_calibrated_later(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = busy("train (pid 7)")
    farm.calibrate()
    waiting = farm.device(device.id)
    assert (waiting.state, waiting.reason) == (
        DeviceState.CHECKING,
        "busy: the GPU is used by train (pid 7)",
    )
    assert waiting.lease_owner is None

    # Its agent says so too, in the middle of the next calibration: its word stands.
    class Told(ReplayEngine):
        def calibrate(self, device: Device, *, cancellation: Any) -> CalibrationRun:
            heartbeat(farm.services, device.id, ready=False, reason="busy: the agent's word")
            raise busy("train (pid 7)")

    ask_for_calibrations(farm.services)
    calibrate_device(*farm.inbox.calibrations.pop(), farm.with_engine(Told()).services)
    offline = farm.device(device.id)
    assert (offline.state, offline.reason) == (DeviceState.OFFLINE, "busy: the agent's word")
    kernel.error = None
    heartbeat(farm.services, device.id)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_a_worker_without_a_linker_says_nothing_about_the_device(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    kernel.error = InvalidInputError("no linker for aarch64: install lld", code="no-linker")
    farm.calibrate()
    waiting = farm.device(device.id)
    assert (waiting.state, waiting.reason) == (
        DeviceState.CHECKING,
        "no worker that looked can link for it: no linker for aarch64: install lld",
    )
    model = farm.ready_model(Scenario(tasks=1))
    with pytest.raises(ConflictError, match="install lld") as refused:
        farm.submit(model)
    assert refused.value.code == "no-linker"
    with farm.services.uow.read() as repos:
        assert not list(repos.jobs.open(model_id=model.id)), "nothing was queued"
    kernel.error = None
    farm.calibrate()
    assert farm.device(device.id).reason == ""
    assert farm.submit(model)


def test_another_device_of_the_pool_takes_the_job(farm: Farm, kernel: Kernel) -> None:
    """The one that was calibrated by a worker with a linker."""
    farm.newcomer("dev-1")
    farm.calibrate()
    kernel.error = InvalidInputError("no linker for aarch64: install lld", code="no-linker")
    unlinked = farm.newcomer("dev-2")
    farm.calibrate()
    assert "install lld" in farm.device(unlinked.id).reason
    assert farm.submit(farm.ready_model(Scenario(tasks=1)))


def test_an_infrastructure_error_asks_for_a_calibration(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    measured: list[Any] = []

    def fragile(task: Any, config: Any) -> Any:
        measured.append(config)
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "cable") if len(measured) == 3 else (1e-3,)

    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, trials=8)
    engine = ReplayEngine(answer=fragile, calibrate=kernel)
    farm.with_engine(engine).with_settings(step_chain_sec=0.0).run(steps=2)
    doubted = farm.device(device.id)
    assert (doubted.state, doubted.reason) == (DeviceState.CHECKING, "waits for calibration after: cable")
    assert doubted.lease_owner is None
    assert farm.calibrate() == 1
    assert farm.device(device.id).state is DeviceState.ONLINE
    farm.run_until_quiet()
    assert farm.job(job.id).state.is_finished


def test_a_void_request_does_nothing(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    assert calibrate_device(device.id, device.fence, farm.services) is None
    assert kernel.runs == 1


def doubt(farm: Farm, device: Device) -> None:
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")


def test_a_removed_device_ends_its_calibration(farm: Farm, kernel: Kernel) -> None:
    farm = farm.with_settings(lease_sec=1.0)
    device = farm.newcomer()

    class Removing(ReplayEngine):
        def calibrate(self, device: Device, *, cancellation: Any) -> CalibrationRun:
            remove_device(farm.services, device.id)
            wait_until(lambda: cancellation.cancelled, "the end of the hold")
            raise DeviceLostError("its child was closed")

    ask_for_calibrations(farm.services)
    assert calibrate_device(*farm.inbox.calibrations.pop(), farm.with_engine(Removing()).services) is None
    with farm.services.uow.read() as repos:
        (removed,) = repos.devices.list(state=DeviceState.REMOVED).items
    assert removed.reason == "removed by a person"
    assert removed.id == device.id


def test_a_worker_that_stops_hands_the_calibration_back(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()

    class Slow(ReplayEngine):
        def calibrate(self, device: Device, *, cancellation: Any) -> CalibrationRun:
            wait_until(lambda: cancellation.cancelled, "the end of the hold")
            raise DeviceLostError("its child was closed")

    ask_for_calibrations(farm.services)
    stopping = replace(farm.with_engine(Slow()).services, draining=lambda: True)
    calibrate_device(*farm.inbox.calibrations.pop(), stopping)
    waiting = farm.device(device.id)
    assert (waiting.state, waiting.lease_owner) == (DeviceState.CHECKING, None)
    farm.calibrate()
    assert farm.device(device.id).state is DeviceState.ONLINE


def test_all_cores_at_once(farm: Farm, kernel: Kernel) -> None:
    """Their time is told with every record, and judged where a setting says so."""
    kernel.all_cores_sec = 2e-3
    device = farm.newcomer()
    farm.calibrate()
    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, trials=4)
    farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        records = repos.records.for_job(job.id)
    assert {record.extra["calibration_all_cores_sec"] for record in records if record.extra} == {2e-3}

    def again(all_cores_sec: float, limit: float | None) -> Device:
        kernel.all_cores_sec = all_cores_sec
        limited = farm.with_settings(calibration_all_cores_drift=limit)
        with limited.services.uow.write() as repos:
            repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")
        assert limited.calibrate() == 1
        return limited.device(device.id)

    slow = again(9e-3, None)
    assert slow.state is DeviceState.ONLINE
    assert slow.calibration is not None
    assert (slow.calibration["all_cores_sec"], slow.calibration["all_cores_reference_sec"]) == (9e-3, 2e-3)
    judged = again(9e-3, 3.0)
    assert judged.state is DeviceState.QUARANTINED
    assert judged.reason.endswith("took 9.00 ms on all cores at once instead of 2.00 ms")
    assert again(5e-3, 3.0).state is DeviceState.ONLINE
    kernel.time_sec = 9e-3
    assert "took 9.00 ms instead of 1.00 ms" in again(9e-3, 3.0).reason
    newcomer = farm.newcomer("dev-2")
    kernel.time_sec = 1e-3
    kernel.all_cores_sec = 4e-3
    farm.calibrate()
    calibration = farm.device(newcomer.id).calibration
    assert calibration is not None
    assert calibration["all_cores_reference_sec"] == 2e-3, "its pool's"


def test_calibrations_of_before_there_was_a_figure_of_all_cores(farm: Farm, kernel: Kernel) -> None:
    device = farm.newcomer()
    farm.calibrate()
    with farm.services.uow.write() as repos:
        repos._connection.execute(
            text("UPDATE devices SET calibration = :old"),
            {"old": '{"key": "k", "time_sec": 0.001, "reference_sec": 0.001, "at": 1.0}'},
        )
        repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")
    kernel.all_cores_sec = 3e-3
    farm.calibrate()
    calibration = farm.device(device.id).calibration
    assert calibration is not None
    assert (calibration["reference_sec"], calibration["all_cores_reference_sec"]) == (1e-3, 3e-3)
