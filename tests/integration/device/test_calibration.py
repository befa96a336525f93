"""The calibration kernel on real agents: a device that computes wrongly, one that drifts, one that freezes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bent_server
import pytest
from app_farm import Inbox
from replay_server import replay_server
from waiting import wait_until

from tunefarm_app.devices.calibration import ask_for_calibrations, calibrate_device
from tunefarm_app.devices.peak import peaks_of
from tunefarm_app.engines.tvm import TvmEngine
from tunefarm_app.runtime.composition import Services, gateway_way
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.measure.calibration import FIRST_CALL_SEC, rest_limit_sec
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.process import Access, ChildProcess
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.tvm.children.calibrate import repeats


@dataclass
class Lab:
    """One bent device, and a worker that calibrates it when told."""

    services: Services
    inbox: Inbox
    bend: Path
    agent: Any
    start: Callable[[], Any]

    def device(self) -> Device:
        with self.services.uow.read() as repos:
            (device,) = repos.devices.in_pool("test")
        return device

    def calibrate(self, *, bent: str = "straight", **settings: float) -> Device:
        self.bend.write_text(bent)

        def is_due() -> bool:
            ask_for_calibrations(self.services)
            return bool(self.inbox.calibrations)

        wait_until(is_due, lambda: f"a calibration of {self.device()}")
        changed = replace(self.services, settings=self.services.settings.model_copy(update=settings))
        calibrate_device(*self.inbox.calibrations.pop(), changed)
        return self.device()

    def peaks(self) -> dict[str, Peak]:
        with self.services.uow.read() as repos:
            return peaks_of(repos, [self.device()])

    def states(self) -> set[DeviceState]:
        """The states that it ever was in."""
        with self.services.uow.read() as repos:
            return {change.state for change in repos.device_history.changes(self.device().id).items}

    def comes_back(self, **settings: float) -> bool:
        """Whether a calibration lets it in; on a busy machine one may say that its clock drifts."""
        return self.calibrate(**settings).state is DeviceState.ONLINE

    def drifts(self) -> bool:
        """Whether its slow clock is seen; not where a busy machine made it slow before."""
        if self.device().state is DeviceState.ONLINE:
            self.doubt()
        return "its clock drifts" in self.calibrate(bent="slow").reason

    def doubt(self) -> None:
        with self.services.uow.write() as repos:
            repos.devices.apply(self.device().id, DeviceEvent.DOUBT, "to be sure")


@contextmanager
def lab_in(tmp_path: Path, join: Callable[..., Any], **settings: Any) -> Iterator[Lab]:
    """A farm with one bent device, which is reached as the settings say."""
    shim, bend, folder = tmp_path / "shim.so", tmp_path / "bend", tmp_path / "server"
    folder.mkdir()
    bend.write_text("straight")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(shim)],
        input=bent_server.SHIM_SOURCE.encode(),
        check=True,
    )
    settings |= {"calibrate_every_sec": 3600.0, "calibrate_retry_sec": 0.01, "peak_every_sec": 0.0}
    with replay_server(folder, **settings) as server:
        environment = {
            "BENT_FILE": str(bend),
            "BENT_SHIM": str(shim),
            "PYTHONPATH": str(Path(bent_server.__file__).parent),
            "TUNEFARM_SANDBOX": "off",  # sessions read how to go wrong from a file
        }

        def start() -> Any:
            agent = join(server.url, key=server.api_key, module="bent_agent", env=environment)
            agent.wait_online()
            return agent

        inbox = Inbox()
        services = server.services
        engine = TvmEngine(services.settings, gateway_way(services.settings, services.uow))
        yield Lab(replace(services, engine=engine, dispatcher=inbox), inbox, bend, start(), start)


@pytest.fixture
def lab(tmp_path: Path, by_gateway: dict[str, Any], join: Callable[..., Any]) -> Iterator[Lab]:
    with lab_in(tmp_path, join, **by_gateway) as farm:
        yield farm


def test_wrong_answers_and_a_drifting_clock_quarantine(lab: Lab) -> None:
    assert lab.device().state is DeviceState.CHECKING
    well = lab.calibrate()
    assert (well.state, well.reason) == (DeviceState.ONLINE, "")
    assert well.calibration is not None
    assert 1e-5 < well.calibration["time_sec"] < 60.0
    assert lab.peaks() == {}, "it was switched off"

    lab.doubt()
    wait_until(lambda: lab.comes_back(peak_every_sec=3600.0), lambda: f"{lab.device()} to be online again")
    peak = lab.peaks()[well.id]
    assert peak.missing.startswith("its target has no fused multiply-adds"), "it names no CPU"
    assert peak.flops_on(1, "float32") is None
    assert peak.threads == 1
    assert 1e7 < (peak.memory_bandwidth_on(1) or 0.0) < 1e14

    lab.doubt()
    wrong = lab.calibrate(bent="wrong")
    assert wrong.state is DeviceState.QUARANTINED
    assert "computed a wrong result" in wrong.reason
    wait_until(lab.comes_back, lambda: f"{lab.device()} to be online again")

    wait_until(lab.drifts, lambda: f"the drift of {lab.device()}")
    assert lab.device().state is DeviceState.QUARANTINED
    with lab.services.uow.write() as repos:
        assert repos.devices.lease("test", "step:x", 60.0) is None
    wait_until(lab.comes_back, lambda: f"{lab.device()} to be online again")


@pytest.mark.exhaustive
def test_a_slow_board_gets_the_time_that_its_first_call_asks_for(lab: Lab) -> None:
    """Thirty calls of a second each, as on a fast one, would exceed the limit."""
    slow = lab.calibrate(bent="snail")
    assert (slow.state, slow.reason) == (DeviceState.ONLINE, "")
    assert slow.calibration is not None
    assert slow.calibration["time_sec"] >= 1.0


@pytest.mark.parametrize("first_call_sec", [1e-4, 0.1, 0.5, 1.0, 4.0, FIRST_CALL_SEC])
def test_what_follows_the_first_call_fits_into_its_limit(first_call_sec: float) -> None:
    one_core = (repeats(first_call_sec) + 1) * first_call_sec  # the timer makes a call of its own
    all_cores = 4 * 2 * first_call_sec if first_call_sec >= 0.25 else 14 * 0.5 + 0.3
    assert one_core + all_cores < rest_limit_sec(first_call_sec)
    assert repeats(first_call_sec) == 30 or first_call_sec > 0.3


@pytest.mark.exhaustive
def test_a_frozen_device_is_quarantined_and_comes_back(lab: Lab) -> None:
    lab.calibrate()
    first = lab.agent.wait_online()
    lab.doubt()
    # The agent too: it would replace the server, on a busy machine before the calibration comes to it.
    for pid in (lab.agent.pid, first["server_pid"]):
        os.kill(pid, signal.SIGSTOP)
    frozen = lab.calibrate()
    assert frozen.state is not DeviceState.ONLINE
    os.kill(lab.agent.pid, signal.SIGCONT)
    lab.agent.wait_online(other_than=first["server_pid"])
    wait_until(lab.comes_back, lambda: f"{lab.device()} to be online again")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("bent", "kernel"), [("snail", "calibrate.so"), ("straight", "triad-1.so")], ids=["kernel", "peak"]
)
def test_an_agent_that_is_killed_in_its_calibration_is_away(lab: Lab, bent: str, kernel: str) -> None:
    """Nothing was wrong with what it computed: it is no failed calibration, nor one of its peak, which belongs to it."""
    with ThreadPoolExecutor(1) as executor:
        calibrating = executor.submit(lab.calibrate, bent=bent, peak_every_sec=3600.0)
        sessions = lab.agent.work_dir / "sessions"
        wait_until(lambda: list(sessions.rglob(f"*{kernel}")), "the kernel on the device")
        lab.agent.end(signal.SIGKILL)
        away = calibrating.result()
    assert (away.state, away.held) == (DeviceState.OFFLINE, False)
    assert away.reason.startswith("lost in its calibration: ")
    lab.agent = lab.start()
    wait_until(lab.comes_back, lambda: f"{lab.device()} to be online again")
    assert DeviceState.QUARANTINED not in lab.states()


@pytest.mark.exhaustive
def test_a_device_whose_session_crashes_on_the_kernel_is_quarantined(lab: Lab) -> None:
    """It opens the next session, so its connection was not lost."""
    crashed = lab.calibrate(bent="crash")
    assert crashed.state is DeviceState.QUARANTINED
    assert crashed.reason.startswith("the calibration failed: the device's session ended: ")
    wait_until(lab.comes_back, lambda: f"{lab.device()} to be online again")


@pytest.mark.skipif(find_nvcc() is None, reason="needs CUDA's compiler")
def test_the_kernel_builds_for_a_gpu(tmp_path: Path) -> None:
    access = Access(writes=(tmp_path,), programs=True)
    env = {"TMPDIR": str(tmp_path)}
    with ChildProcess("tunefarm_tuning.tvm.children.calibrate", access=access, env=env) as child:
        target = parse_target("cuda/sm_90").to_json()
        child.call("build", {"target": target, "work_dir": str(tmp_path)}, timeout_sec=300)
    assert (tmp_path / "calibrate.so").is_file()
