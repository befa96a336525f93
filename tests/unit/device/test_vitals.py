"""What the machine tells of itself."""

from __future__ import annotations

import json
from pathlib import Path

from nvidia_driver import Driver
from waiting import wait_until

from tunefarm_workers.device import gpu
from tunefarm_workers.device.vitals import Vitals


def test_they_are_read_anew_after_a_while() -> None:
    now = [0.0]
    vitals = Vitals(None, every_sec=5.0, clock=lambda: now[0])
    first = vitals.read()
    assert json.loads(json.dumps(first)) == first
    assert len(first["load"]) == 3
    assert vitals.read() is first
    now[0] = 5.0
    assert vitals.read() is not first


def test_a_gpu_tells_of_itself(driver: Driver) -> None:
    driver.has("H100", "H100")
    _, second = gpu.find()
    now = [0.0]
    vitals = Vitals(second, every_sec=5.0, clock=lambda: now[0])

    def told(at: float) -> list[dict[str, float]] | None:
        now[0] = at
        vitals.read()
        vitals.wait(60.0)
        now[0] = at + 5.0
        found: list[dict[str, float]] | None = vitals.read().get("gpus")
        return found

    well = {
        "temperature_celsius": 42.0,
        "clock_mhz": 345.0,
        "clock_max_mhz": 1980.0,
        "load": 0.07,
        "memory_used_bytes": 4 << 20,
    }
    assert told(0.0) == [well]
    driver.fails()
    assert told(10.0) == [well], "the driver is asked less often than the rest"
    assert told(30.0) is None


def test_a_driver_that_does_not_answer_holds_up_nothing(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100")
    (only,) = gpu.find()
    driver.freezes()
    now = [0.0]
    vitals = Vitals(only, every_sec=5.0, clock=lambda: now[0])
    for second in range(0, 200, 5):
        now[0] = float(second)
        assert set(vitals.read()) >= {"load"}
    asked = wait_until(
        lambda: (tmp_path / "asked").is_file() and (tmp_path / "asked").read_text(), "the question"
    )
    assert asked.count("x") == 1, "and is not asked again meanwhile"
    driver.thaws()
    vitals.wait(60.0)
