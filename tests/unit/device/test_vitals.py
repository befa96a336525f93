"""What the machine tells of itself."""

from __future__ import annotations

import json

from nvidia_driver import Driver

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
    assert Vitals(second, every_sec=5.0, clock=lambda: 0.0).read()["gpus"] == [
        {
            "temperature_celsius": 42.0,
            "clock_mhz": 345.0,
            "clock_max_mhz": 1980.0,
            "load": 0.07,
            "memory_used_bytes": 4 << 20,
        }
    ]
    driver.fails()
    assert "gpus" not in Vitals(second, every_sec=5.0, clock=lambda: 0.0).read()
