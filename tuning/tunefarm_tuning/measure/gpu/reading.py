"""How a GPU is at a moment: what its driver tells, interpreted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.nvml import Nvml, NvmlError, Question
from tunefarm_tuning.measure.gpu.state import GpuState, clock_reasons

_LOST = {
    "NVML_ERROR_GPU_IS_LOST": "the GPU has fallen off the bus",
    "NVML_ERROR_RESET_REQUIRED": "the GPU has to be reset",
    "NVML_ERROR_NOT_FOUND": "the GPU is gone",
    "NVML_ERROR_GPU_NOT_FOUND": "the GPU is gone",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the GPU's driver is not loaded",
    "NVML_ERROR_LIBRARY_NOT_FOUND": "the GPU's driver is gone",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the GPU's driver was replaced: restart the machine, or load the new one",
}

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on the GPU.

    Attributes:
        name: Empty where the driver does not say.
        memory_bytes: None where the driver does not say.
        load: 0 to 1: how much it used the GPU of late; None where the driver does not tell processes apart.
    """

    pid: int
    name: str = ""
    memory_bytes: int | None = None
    load: float | None = None

    def __str__(self) -> str:
        return f"{self.name or 'a process'} (pid {self.pid})"

    def to_json(self) -> dict[str, Any]:
        said = {"pid": self.pid, "name": self.name, "memory_bytes": self.memory_bytes, "load": self.load}
        return {name: value for name, value in said.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What is not told is None.

    Attributes:
        lost: Why nothing can run on the GPU; empty where all is well.
        state: Its clocks, temperature, power and memory.
        load: 0 to 1: the share of the last moments in which something ran on it.
        processes: Those that compute; None where the driver does not say.
        mig: Whether it is cut into slices.
    """

    lost: str = ""
    state: GpuState = GpuState()  # noqa: RUF009  (frozen)
    clock_max_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_limit_watts: float | None = None
    load: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    mig: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what the farm is told."""
        said: dict[str, Any] = {
            **self.state.to_json(),
            "clock_max_mhz": self.clock_max_mhz,
            "memory_clock_max_mhz": self.memory_clock_max_mhz,
            "power_limit_watts": self.power_limit_watts,
            "load": self.load,
            "mig": self.mig,
            "lost": self.lost or None,
            "processes": [one.to_json() for one in self.processes[:16]] if self.processes else None,
        }
        return {name: value for name, value in said.items() if value is not None}


def read(nvml: Nvml, uuid: str) -> GpuReading:
    """Ask the driver about a GPU."""
    try:
        lost = _why_lost(nvml, uuid)
    except NvmlError as error:
        lost = _LOST.get(error.name, f"the GPU's driver fails: {error.message}")
    if lost:
        return GpuReading(lost=lost)
    return GpuReading(
        state=read_state(nvml, uuid),
        clock_max_mhz=told(nvml, uuid, Question.CLOCK_MAX, float),
        memory_clock_max_mhz=told(nvml, uuid, Question.MEMORY_CLOCK_MAX, float),
        power_limit_watts=told(nvml, uuid, Question.POWER_LIMIT, lambda value: value / 1e3),
        load=told(nvml, uuid, Question.LOAD, lambda value: value / 100),
        processes=read_processes(nvml, uuid),
        mig=told(nvml, uuid, Question.MIG, bool),
    )


def read_state(nvml: Nvml, uuid: str) -> GpuState:
    """Ask for what a measurement depends on, and no more: it is asked beside every one."""
    return GpuState(
        clock_mhz=told(nvml, uuid, Question.CLOCK, float),
        memory_clock_mhz=told(nvml, uuid, Question.MEMORY_CLOCK, float),
        temperature_celsius=told(nvml, uuid, Question.TEMPERATURE, float),
        power_watts=told(nvml, uuid, Question.POWER, lambda value: round(value / 1e3, 1)),
        memory_used_bytes=told(nvml, uuid, Question.MEMORY, lambda value: float(value[1])),
        throttle=told(nvml, uuid, Question.EVENTS, clock_reasons) or (),
    )


def read_processes(nvml: Nvml, uuid: str) -> tuple[GpuProcess, ...] | None:
    """Return the processes that compute on the GPU; None where the driver does not say."""
    listed = told(nvml, uuid, Question.PROCESSES, list)
    if listed is None:
        return None
    loads: dict[int, float] | None = told(nvml, uuid, Question.PROCESS_LOADS, _highest)
    return tuple(
        GpuProcess(
            pid=int(pid),
            name=clean(str(name or "").rsplit("/", 1)[-1], 60),
            memory_bytes=None if memory is None else int(memory),
            load=None if loads is None else loads.get(int(pid), 0.0),
        )
        for pid, memory, name in listed
    )


def told(nvml: Nvml, uuid: str, question: Question, read_as: Callable[[Any], _Value]) -> _Value | None:
    """Return an answer; None where the driver, or the GPU, has none, or one that cannot be read."""
    try:
        return read_as(nvml.ask(uuid, question))
    except Exception:  # noqa: BLE001  (whatever it is, the rest can be told)
        return None


def _why_lost(nvml: Nvml, uuid: str) -> str:
    nvml.ask(uuid, Question.NAME)
    try:
        # The name may be remembered; this has to be looked up on the GPU.
        nvml.ask(uuid, Question.TEMPERATURE)
    except NvmlError as error:
        return _LOST.get(error.name, "")
    return ""


def _highest(pairs: Any) -> dict[int, float]:
    loads: dict[int, float] = {}
    for pid, percent in pairs:
        loads[int(pid)] = max(loads.get(int(pid), 0.0), min(float(percent), 100.0) / 100)
    return loads
