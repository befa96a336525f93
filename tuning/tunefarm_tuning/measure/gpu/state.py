"""A GPU's state during a timing, and whether the timing can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.core.json_fields import fields_to_json
from tunefarm_tuning.core.untrusted_text import clean

GPU_STATE = "tunefarm.gpu_state"
"""Name of the function with which a GPU's device tells its state, as JSON."""

SLOWED_BELOW = 0.85
"""A GPU whose clock is below this share of its clock at calibration is throttled: timings on it are not kept."""

BUSY = "device-busy"
"""Error code if another process computes on the GPU: neither the device nor the candidate failed."""

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
"""Reasons for a low clock that pass."""

_POWER_CAP = "power-cap"
"""Many GPUs run at their power limit all day: they had a higher clock only at their calibration, short and cold."""


def busy(used_by: str) -> DeviceLostError:
    """Return the error for a GPU that another process keeps busy."""
    return DeviceLostError(f"the GPU is used by {clean(used_by, 300)}", code=BUSY)


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of NVML's bits, without `idle`."""
    known = [name for bit, name in _REASONS.items() if bits & bit and name != "idle"]
    return tuple(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A GPU's state. A value that the driver does not tell is None, or empty.

    Attributes:
        clock_mhz: Clock of the multiprocessors, in MHz.
        memory_clock_mhz: Clock of the memory, in MHz.
        memory_used_bytes: Memory used by all processes.
        throttle: Why the clock is not higher, other than being idle.
        used_by: Other processes that compute on it, for a message.
    """

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    memory_used_bytes: float | None = None
    throttle: tuple[str, ...] = ()
    used_by: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the values that are known."""
        return {name: value for name, value in fields_to_json(self).items() if value not in (None, [], "")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GpuState:
        """Read what a device told; a value of the wrong type is left out."""
        throttle = data.get("throttle")
        return cls(
            clock_mhz=_number(data.get("clock_mhz")),
            memory_clock_mhz=_number(data.get("memory_clock_mhz")),
            temperature_celsius=_number(data.get("temperature_celsius")),
            power_watts=_number(data.get("power_watts")),
            memory_used_bytes=_number(data.get("memory_used_bytes")),
            throttle=tuple(str(reason)[:40] for reason in throttle[:16])
            if isinstance(throttle, list)
            else (),
            used_by=str(data.get("used_by", ""))[:300],
        )

    def held_back(self, clock_mhz: float | None) -> str:
        """Return why a timing in this state is too slow, given the clock at the GPU's calibration; empty if the state is good."""
        reasons = [reason for reason in self.throttle if reason in _THROTTLING]
        if reasons:
            return f"throttled: {', '.join(reasons)}"
        if self.throttle == (_POWER_CAP,):
            return ""
        why = f" ({', '.join(self.throttle)})" if self.throttle else ""
        return f"{slow}{why}" if (slow := self._slow(clock_mhz)) else ""

    def capped(self, clock_mhz: float | None) -> str:
        """Return how low the clock was because of the power limit alone, which waiting would not change; empty if it was not."""
        return self._slow(clock_mhz) if self.throttle == (_POWER_CAP,) else ""

    def _slow(self, clock_mhz: float | None) -> str:
        if clock_mhz is None or self.clock_mhz is None or self.clock_mhz >= SLOWED_BELOW * clock_mhz:
            return ""
        return f"its clock was {self.clock_mhz:g} MHz, {clock_mhz:g} at calibration"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None
