"""Read the machine's load, temperatures and clocks, and what holds its clock back."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tunefarm_tuning.core.errors import reason_of
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu import reading as gpu_reading
from tunefarm_tuning.measure.gpu.nvml import Nvml
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import GpuReading
from tunefarm_workers.device.gpu.driver import Gpu

log = logging.getLogger("tunefarm.device")

_COOLING = "class/thermal/cooling_device*"
_SLOWS_CPUS = ("thermal-cpufreq", "cpufreq", "thermal-cpuidle", "Processor", "intel_powerclamp")
"""Beginnings of the names of cooling devices that take a CPU's clock, or its time."""
_RASPBERRY_PI = "devices/platform/soc/soc:firmware/get_throttled"
_PI_REASONS = ("undervoltage", "capped", "throttled", "temperature")
"""What the lowest bits of a Raspberry Pi's answer mean: what is so now."""


class Vitals:
    """Reads them at most once in `every_sec`. A thread reads a GPU's, because a faulty driver may never answer.

    Args:
        of_gpu: The GPU that the device is; None for a CPU.
        every_sec: Seconds for which a reading is used.
        clock: Monotonic seconds.
        nvml: Whom to ask about the GPU; the driver by default.
    """

    def __init__(
        self, of_gpu: Gpu | None, *, every_sec: float, clock: Callable[[], float], nvml: Nvml | None = None
    ) -> None:
        self._gpu = of_gpu
        self._nvml = nvml or open_nvml()
        self._every_sec = every_sec
        self._clock = clock
        self._read_at: float | None = None
        self._read: dict[str, Any] = {}
        self._gpu_asked_at: float | None = None
        self._gpu_thread: threading.Thread | None = None
        # Replaced in one assignment, since one thread writes it and others read it.
        self._gpu_reading: tuple[int, GpuReading, bool] | None = None

    def read(self) -> dict[str, Any]:
        """Return ``load`` and, where known, ``temperature_celsius``, ``clock_mhz``, ``clock_max_mhz``, ``throttle`` and ``gpus``."""
        now = self._clock()
        if self._gpu is not None:
            self._ask_gpu(now, self._gpu)
        if self._read_at is None or now - self._read_at >= self._every_sec:
            self._read_at = now
            self._read = self._look()
        return self._read

    def gpu(self) -> tuple[int, GpuReading, bool] | None:
        """Return the number of the GPU's last reading, the reading, and whether its pids are ours; None before the first."""
        return self._gpu_reading

    def silent_sec(self) -> float:
        """Return the seconds for which the GPU's driver has not answered."""
        if self._gpu_thread is None or self._gpu_asked_at is None or not self._gpu_thread.is_alive():
            return 0.0
        return self._clock() - self._gpu_asked_at

    def wait(self, timeout_sec: float) -> None:
        """Wait for the GPU's driver if a request is unanswered."""
        if self._gpu_thread is not None:
            self._gpu_thread.join(timeout_sec)

    def _ask_gpu(self, now: float, of: Gpu) -> None:
        if self._gpu_thread is not None and self._gpu_thread.is_alive():
            return
        if self._gpu_asked_at is not None and now - self._gpu_asked_at < self._every_sec:
            return
        self._gpu_asked_at = now
        number = 1 if self._gpu_reading is None else self._gpu_reading[0] + 1

        def ask() -> None:
            try:
                reading = gpu_reading.read(self._nvml, of.uuid)
                ours = not reading.lost and self._nvml.tells_our_pids()
            except Exception as error:  # else the last reading would be used for ever
                log.exception("the GPU's driver could not be queried")
                reading = GpuReading(
                    lost=f"the GPU's driver cannot be queried: {clean(reason_of(error), 200)}"
                )
                ours = False
            self._gpu_reading = (number, reading, ours)

        self._gpu_thread = threading.Thread(target=ask, name="gpu-vitals", daemon=True)
        self._gpu_thread.start()

    def _look(self) -> dict[str, Any]:
        vitals: dict[str, Any] = {"load": [round(value, 2) for value in psutil.getloadavg()]}
        # Kernels and containers hide readings in many ways.
        with contextlib.suppress(AttributeError, NotImplementedError, OSError, ValueError, RuntimeError):
            hottest = [
                sensor.current for sensors in psutil.sensors_temperatures().values() for sensor in sensors
            ]
            if hottest:
                vitals["temperature_celsius"] = round(max(hottest), 1)
        with contextlib.suppress(AttributeError, NotImplementedError, OSError, ValueError, RuntimeError):
            clock = psutil.cpu_freq()
            if clock is not None and clock.current:
                vitals["clock_mhz"] = round(clock.current)
                if clock.max:
                    vitals["clock_max_mhz"] = round(clock.max)
        if held_back := throttle():
            vitals["throttle"] = held_back
        if self._gpu_reading is not None:
            vitals["gpus"] = [self._gpu_reading[1].to_json()]
        return vitals


def throttle(sysfs: Path = Path("/sys")) -> list[str]:
    """Return what holds the CPU's clock back now, by the system's names; empty if nothing does, or the system does not tell."""
    reasons = {
        kind
        for device in sysfs.glob(_COOLING)
        if (kind := _text(device / "type")).startswith(_SLOWS_CPUS)
        and _text(device / "cur_state").lstrip("0").isdigit()  # -1: Intel's driver does nothing
    }
    with contextlib.suppress(ValueError):
        bits = int(_text(sysfs / _RASPBERRY_PI) or "0", 16)
        reasons |= {reason for number, reason in enumerate(_PI_REASONS) if bits >> number & 1}
    return sorted(clean(reason, 40) for reason in reasons)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
