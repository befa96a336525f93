"""How the machine is: its load, temperatures and clocks, where the system tells them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psutil

from tunefarm_workers.device import gpu
from tunefarm_workers.device.gpu import Gpu


class Vitals:
    """Reads them at most once in `every_sec`: asking a GPU's driver takes a while.

    Args:
        of_gpu: The GPU that the device is; None for a CPU.
        every_sec: How long a reading is good.
        clock: Monotonic seconds.
    """

    def __init__(self, of_gpu: Gpu | None, *, every_sec: float, clock: Callable[[], float]) -> None:
        self._gpu = of_gpu
        self._every_sec = every_sec
        self._clock = clock
        self._read_at: float | None = None
        self._read: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return ``load`` and, where known, ``temperature_celsius``, ``clock_mhz``, ``clock_max_mhz`` and ``gpus``."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= self._every_sec:
            self._read_at = now
            self._read = self._look()
        return self._read

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = {"load": [round(value, 2) for value in psutil.getloadavg()]}
        # What a kernel or a container hides, it hides in many ways.
        with contextlib.suppress(AttributeError, NotImplementedError, OSError, ValueError, RuntimeError):
            hottest = [one.current for sensor in psutil.sensors_temperatures().values() for one in sensor]
            if hottest:
                found["temperature_celsius"] = round(max(hottest), 1)
        with contextlib.suppress(AttributeError, NotImplementedError, OSError, ValueError, RuntimeError):
            clock = psutil.cpu_freq()
            if clock is not None and clock.current:
                found["clock_mhz"] = round(clock.current)
                if clock.max:
                    found["clock_max_mhz"] = round(clock.max)
        if self._gpu is not None and (told := gpu.vitals(self._gpu)):
            found["gpus"] = [told]
        return found
