"""How the machine is: its load, temperatures and clocks, where the system tells them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from tunefarm_workers.device import gpu
from tunefarm_workers.device.gpu import Gpu

_GPU_EVERY_SEC = 20.0
"""``nvidia-smi`` can take seconds, and keeps a core busy meanwhile: not with every sign of life."""


class Vitals:
    """Reads them at most once in `every_sec`, a GPU's less often, and those in a thread: a driver in trouble may not answer.

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
        self._gpu_asked_at: float | None = None
        self._gpu_thread: threading.Thread | None = None
        self._gpu_told: Mapping[str, float] = {}

    def read(self) -> dict[str, Any]:
        """Return ``load`` and, where known, ``temperature_celsius``, ``clock_mhz``, ``clock_max_mhz`` and ``gpus``."""
        now = self._clock()
        if self._gpu is not None:
            self._ask_gpu(now, self._gpu)
        if self._read_at is None or now - self._read_at >= self._every_sec:
            self._read_at = now
            self._read = self._look()
        return self._read

    def wait(self, timeout_sec: float) -> None:
        """Wait for the GPU's driver, if it was asked and has not answered."""
        if self._gpu_thread is not None:
            self._gpu_thread.join(timeout_sec)

    def _ask_gpu(self, now: float, of: Gpu) -> None:
        if self._gpu_thread is not None and self._gpu_thread.is_alive():
            return
        if self._gpu_asked_at is not None and now - self._gpu_asked_at < max(_GPU_EVERY_SEC, self._every_sec):
            return
        self._gpu_asked_at = now

        def ask() -> None:
            self._gpu_told = gpu.vitals(of)

        self._gpu_thread = threading.Thread(target=ask, name="gpu-vitals", daemon=True)
        self._gpu_thread.start()

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
        if self._gpu_told:
            found["gpus"] = [dict(self._gpu_told)]
        return found
