"""What an agent tells of how its machine is. An agent may say anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """None where nobody told.

    Attributes:
        load: The machine's, as how many processes want a core.
        temperature_celsius: The GPU's, where the device is one; else the machine's hottest.
        clock_mhz: The GPU's or the CPU's.
    """

    load: float | None
    temperature_celsius: float | None
    clock_mhz: float | None


def vitals_of(info: Mapping[str, Any]) -> Vitals:
    """Return what a device's `info` says."""
    told = info.get("agent")
    agent: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    loads, gpus = agent.get("load"), agent.get("gpus")
    gpu = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping) else {}
    return Vitals(
        load=_number(loads[0], 1e6) if isinstance(loads, list) and loads else None,
        temperature_celsius=_first(gpu, agent, "temperature_celsius", 1e4),
        clock_mhz=_first(gpu, agent, "clock_mhz", 1e6),
    )


def _first(gpu: Mapping[str, Any], agent: Mapping[str, Any], name: str, most: float) -> float | None:
    of_gpu = _number(gpu.get(name), most)
    return _number(agent.get(name), most) if of_gpu is None else of_gpu


def _number(value: object, most: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= most else None  # no nan either; a whole number may have any size
