"""The vitals of a machine: load, temperature, clocks, GPUs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from nvml_answers import Driver

from tunefarm_tuning.measure.gpu.nvml import NvmlError, Question
from tunefarm_tuning.measure.gpu.nvml_recorded import RecordedNvml
from tunefarm_workers.device.gpu import driver as gpu
from tunefarm_workers.device.gpu_watch import GpuWatch
from tunefarm_workers.device.vitals import Vitals, throttle


def test_they_are_read_anew_after_a_while() -> None:
    now = [0.0]
    vitals = Vitals(None, every_sec=5.0, clock=lambda: now[0])
    first = vitals.read()
    assert json.loads(json.dumps(first)) == first
    assert len(first["load"]) == 3
    assert vitals.read() is first
    now[0] = 5.0
    assert vitals.read() is not first


def test_what_holds_the_cpus_clock_back(tmp_path: Path) -> None:
    assert throttle(tmp_path) == []
    for number, (kind, state) in enumerate(
        [("thermal-cpufreq-0", "0"), ("thermal-cpufreq-1", "3"), ("pwm-fan", "4"), ("Processor", "1")]
    ):
        device = tmp_path / "class" / "thermal" / f"cooling_device{number}"
        device.mkdir(parents=True)
        (device / "type").write_text(f"{kind}\n")
        (device / "cur_state").write_text(f"{state}\n")
    idle = tmp_path / "class" / "thermal" / "cooling_device8"
    idle.mkdir()
    (idle / "type").write_text("intel_powerclamp\n")
    (idle / "cur_state").write_text("-1\n")  # it does nothing
    (tmp_path / "class" / "thermal" / "cooling_device9").mkdir()
    assert throttle(tmp_path) == ["Processor", "thermal-cpufreq-1"], "a fan slows nothing"
    pi = tmp_path / "devices" / "platform" / "soc" / "soc:firmware"
    pi.mkdir(parents=True)
    (pi / "get_throttled").write_text("50005\n")  # the higher bits: since it was started
    assert throttle(tmp_path) == ["Processor", "thermal-cpufreq-1", "throttled", "undervoltage"]
    (pi / "get_throttled").write_text("hot\n")
    assert throttle(tmp_path) == ["Processor", "thermal-cpufreq-1"]


def test_a_gpu_tells_of_itself(driver: Driver) -> None:
    driver.has("H100", "H100")
    _, second = gpu.find()
    now = [0.0]
    vitals = Vitals(second, every_sec=5.0, clock=lambda: now[0])

    def reading_at(at: float) -> dict[str, Any]:
        now[0] = at
        vitals.read()
        vitals.wait(60.0)
        now[0] = at + 5.0
        readings: list[dict[str, Any]] = vitals.read()["gpus"]
        vitals.wait(60.0)
        (only,) = readings
        return only

    assert reading_at(0.0) == {
        "temperature_celsius": 42.0,
        "clock_mhz": 1980.0,
        "clock_max_mhz": 1980.0,
        "memory_clock_mhz": 2619.0,
        "memory_clock_max_mhz": 2619.0,
        "power_watts": 71.5,
        "power_limit_watts": 700.0,
        "load": 0.0,
        "memory_used_bytes": 4 << 20,
        "mig": False,
    }
    driver.answers_of(1, events=0x40 | 0x4, load=7, processes=[[7, None, "/usr/bin/python3"]])
    busy = reading_at(20.0)
    assert busy["throttle"] == ["power-cap", "hardware-thermal"]
    assert busy["processes"] == [{"pid": 7, "name": "python3", "load": 0.0}]
    driver.fails()
    assert "driver was replaced" in reading_at(40.0)["lost"]


class FrozenNvml(RecordedNvml):
    """Answers to nothing until it is told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = 0
        self.thawed = threading.Event()

    def ask(self, uuid: str, question: Question) -> Any:
        self.asked += 1
        self.thawed.wait()
        return super().ask(uuid, question)


def test_a_driver_that_does_not_answer_holds_up_nothing(driver: Driver) -> None:
    driver.has("H100")
    (only,) = gpu.find()
    now = [0.0]
    frozen = FrozenNvml(driver.path)
    vitals = Vitals(only, every_sec=5.0, clock=lambda: now[0], nvml=frozen)
    watch = GpuWatch(vitals, clock=lambda: now[0])
    for second in range(0, 200, 5):
        now[0] = float(second)
        assert set(vitals.read()) >= {"load"}
        reason = watch.reason(1e9)
        assert reason == (
            "the GPU's driver has not answered yet"
            if second < 60
            else "the GPU's driver has not answered for over 60 s"
        )
    assert frozen.asked <= 1, "it is not asked again meanwhile"
    frozen.thawed.set()
    vitals.wait(60.0)
    assert watch.reason(1e9) == ""
    assert frozen.asked > 1


class OddNvml(RecordedNvml):
    """Fails with an unexpected error when it is told to."""

    odd: bool | None = False

    def ask(self, uuid: str, question: Question) -> Any:
        if self.odd:
            raise NvmlError("NVML_ERROR_UNKNOWN", "nobody knows why")
        return super().ask(uuid, question)

    def tells_our_pids(self) -> bool:
        if self.odd is None:
            raise AttributeError("no such thing")
        return super().tells_our_pids()


def test_unexpected_errors_are_reported(driver: Driver) -> None:
    """The last reading must not stand for ever."""
    driver.has("H100")
    (only,) = gpu.find()
    now = [0.0]
    odd = OddNvml(driver.path)
    vitals = Vitals(only, every_sec=5.0, clock=lambda: now[0], nvml=odd)
    watch = GpuWatch(vitals, clock=lambda: now[0])

    def reason(at: float) -> str:
        now[0] = at
        vitals.read()
        vitals.wait(60.0)
        return watch.reason(1e9)

    assert reason(0.0) == ""
    odd.odd = True
    assert reason(10.0) == "the GPU's driver fails: nobody knows why"
    odd.odd = None
    assert reason(20.0) == "the GPU's driver cannot be queried: AttributeError: no such thing"
    odd.odd = False
    assert reason(30.0) == ""


def test_a_gpu_that_falls_off_the_bus_is_told(driver: Driver) -> None:
    driver.is_as("eight")
    gpus = gpu.find()
    now = [0.0]

    def reasons() -> list[str]:
        reasons = []
        for lost in (gpus[4], gpus[5]):
            vitals = Vitals(lost, every_sec=5.0, clock=lambda: now[0])
            vitals.read()
            vitals.wait(60.0)
            reasons.append(GpuWatch(vitals, clock=lambda: now[0]).reason(1e9))
        return reasons

    assert reasons() == ["", ""]
    driver.is_as("lost")
    assert reasons() == ["", "the GPU has fallen off the bus"]
