"""How a GPU was when something was timed on it, and whether the timing can be believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.core.untrusted_text import clean

GPU_STATE = "tunefarm.gpu_state"
"""The function under which a device that is a GPU tells its state, as JSON."""

SLOWED_BELOW = 0.85
"""Part of the clock at calibration under which a timing says more about the GPU than about the kernel."""

BUSY = "device-busy"
"""Code of the error where somebody else computes on the GPU: a fault neither of the device nor of what was to be measured."""

_USED_BY = "the GPU is used by "

_REASONS = {
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
    0x100: "display-clocks",
}
"""NVML's bits of why a clock is not higher (``nvmlClocksEventReasons``)."""

_THROTTLING = {"hardware-slowdown", "thermal", "hardware-thermal", "power-brake"}
"""Those that come and go."""

_POWER_CAP = "power-cap"
"""How many a GPU works all day, under a clock that it had at its calibration, short and cold, and never has in a network."""


def busy(used_by: str) -> DeviceLostError:
    """Return the error of a GPU that somebody else keeps busy."""
    return DeviceLostError(f"{_USED_BY}{clean(used_by, 300)}", code=BUSY)


def says_busy(message: str) -> bool:
    """Return whether the message of a failed measurement is that of `busy`."""
    return message.startswith(_USED_BY)


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of NVML's bits; `idle` is none worth telling."""
    known = [name for bit, name in _REASONS.items() if bits & bit and name != "idle"]
    return tuple(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """None, or empty, where the driver does not say.

    Attributes:
        clock_mhz: Of the multiprocessors.
        memory_used_bytes: By whomever.
        throttle: Why the clock is not higher, where there is a reason but that nothing runs.
        used_by: Who else was computing on it, as a person reads it.
    """

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    memory_used_bytes: float | None = None
    throttle: tuple[str, ...] = ()
    used_by: str = ""

    def to_json(self) -> dict[str, Any]:
        told = {
            "clock_mhz": self.clock_mhz,
            "memory_clock_mhz": self.memory_clock_mhz,
            "temperature_celsius": self.temperature_celsius,
            "power_watts": self.power_watts,
            "memory_used_bytes": self.memory_used_bytes,
            "throttle": list(self.throttle),
            "used_by": self.used_by,
        }
        return {name: value for name, value in told.items() if value not in (None, [], "")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GpuState:
        """Read what a device said: anything that is no such value is left out."""
        throttle = data.get("throttle")
        return cls(
            clock_mhz=_number(data.get("clock_mhz")),
            memory_clock_mhz=_number(data.get("memory_clock_mhz")),
            temperature_celsius=_number(data.get("temperature_celsius")),
            power_watts=_number(data.get("power_watts")),
            memory_used_bytes=_number(data.get("memory_used_bytes")),
            throttle=tuple(str(one)[:40] for one in throttle[:16]) if isinstance(throttle, list) else (),
            used_by=str(data.get("used_by", ""))[:300],
        )

    def held_back(self, clock_mhz: float | None) -> str:
        """Return why what was timed in this state is slower than the GPU can be; empty where it is not.

        Args:
            clock_mhz: Its clock when it was calibrated, where that is known.
        """
        reasons = [one for one in self.throttle if one in _THROTTLING]
        if reasons:
            return f"throttled: {', '.join(reasons)}"
        if self.throttle == (_POWER_CAP,):
            return ""
        why = f" ({', '.join(self.throttle)})" if self.throttle else ""
        return f"{slow}{why}" if (slow := self._slow(clock_mhz)) else ""

    def capped(self, clock_mhz: float | None) -> str:
        """Return how low its clock was under the power cap alone; empty where it was not. To wait would not change that.

        Args:
            clock_mhz: As of `held_back`.
        """
        return self._slow(clock_mhz) if self.throttle == (_POWER_CAP,) else ""

    def _slow(self, clock_mhz: float | None) -> str:
        if clock_mhz is None or self.clock_mhz is None or self.clock_mhz >= SLOWED_BELOW * clock_mhz:
            return ""
        return f"its clock was {self.clock_mhz:g} MHz, {clock_mhz:g} at calibration"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None
