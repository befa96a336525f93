"""Reads a GPU's state and the processes on it from its driver, and tells which of them are not ours.

A kernel that shares the GPU with another process is timed wrongly, and nothing in its samples shows it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import psutil

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
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the GPU's driver was replaced: restart the machine, or load the new driver",
}

BUSY_LOAD = 0.05
"""A process of another owner disturbs timings from this load on (0 to 1)."""
_MAX_NAMED = 3

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on the GPU.

    Attributes:
        pid: Its id, as the driver tells it.
        name: Empty if the driver does not tell.
        memory_bytes: GPU memory that it holds; None if the driver does not tell.
        load: Its share of the GPU's recent time, 0 to 1; None if the driver does not tell processes apart.
    """

    pid: int
    name: str = ""
    memory_bytes: int | None = None
    load: float | None = None

    def __str__(self) -> str:
        return f"{self.name or 'a process'} (pid {self.pid})"

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The state of a GPU at one time. Values that the driver does not tell are None.

    Attributes:
        lost: Why nothing can run on the GPU; empty if it works.
        state: Its clocks, temperature, power and memory.
        clock_max_mhz: Highest clock of the multiprocessors, in MHz.
        memory_clock_max_mhz: Highest clock of the memory, in MHz.
        load: Share of the recent time in which a kernel ran on it, 0 to 1.
        mig: Whether it is divided into MIG instances.
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
        """Return the values that the farm is told, as JSON."""
        data: dict[str, Any] = {
            **self.state.to_json(),
            "clock_max_mhz": self.clock_max_mhz,
            "memory_clock_max_mhz": self.memory_clock_max_mhz,
            "power_limit_watts": self.power_limit_watts,
            "load": self.load,
            "mig": self.mig,
            "lost": self.lost or None,
            "processes": [process.to_json() for process in self.processes[:16]] if self.processes else None,
        }
        return {name: value for name, value in data.items() if value is not None}


def read(nvml: Nvml, uuid: str) -> GpuReading:
    """Ask the driver for everything about a GPU."""
    try:
        lost = _why_lost(nvml, uuid)
    except NvmlError as error:
        lost = _LOST.get(error.name, f"the GPU's driver fails: {error.message}")
    if lost:
        return GpuReading(lost=lost)
    return GpuReading(
        state=read_state(nvml, uuid),
        clock_max_mhz=answer_or_none(nvml, uuid, Question.CLOCK_MAX, float),
        memory_clock_max_mhz=answer_or_none(nvml, uuid, Question.MEMORY_CLOCK_MAX, float),
        power_limit_watts=answer_or_none(nvml, uuid, Question.POWER_LIMIT, lambda value: value / 1e3),
        load=answer_or_none(nvml, uuid, Question.LOAD, lambda value: value / 100),
        processes=read_processes(nvml, uuid),
        mig=answer_or_none(nvml, uuid, Question.MIG, bool),
    )


def read_state(nvml: Nvml, uuid: str) -> GpuState:
    """Ask only for the values that a measurement depends on, since this runs beside every measurement."""
    return GpuState(
        clock_mhz=answer_or_none(nvml, uuid, Question.CLOCK, float),
        memory_clock_mhz=answer_or_none(nvml, uuid, Question.MEMORY_CLOCK, float),
        temperature_celsius=answer_or_none(nvml, uuid, Question.TEMPERATURE, float),
        power_watts=answer_or_none(nvml, uuid, Question.POWER, lambda value: round(value / 1e3, 1)),
        memory_used_bytes=answer_or_none(nvml, uuid, Question.MEMORY, lambda value: float(value[1])),
        throttle=answer_or_none(nvml, uuid, Question.EVENTS, clock_reasons) or (),
    )


def read_processes(nvml: Nvml, uuid: str) -> tuple[GpuProcess, ...] | None:
    """Return the processes that compute on the GPU; None if the driver does not tell."""
    listed = answer_or_none(nvml, uuid, Question.PROCESSES, list)
    if listed is None:
        return None
    loads: dict[int, float] | None = answer_or_none(nvml, uuid, Question.PROCESS_LOADS, _highest)
    return tuple(
        GpuProcess(
            pid=int(pid),
            name=clean(str(name or "").rsplit("/", 1)[-1], 60),
            memory_bytes=None if memory is None else int(memory),
            load=None if loads is None else loads.get(int(pid), 0.0),
        )
        for pid, memory, name in listed
    )


def answer_or_none(
    nvml: Nvml, uuid: str, question: Question, read_as: Callable[[Any], _Value]
) -> _Value | None:
    """Return the driver's answer, read with `read_as`; None if there is none, or it cannot be read."""
    try:
        return read_as(nvml.ask(uuid, question))
    except Exception:  # noqa: BLE001  (whatever it is, other answers can be read)
        return None


def _why_lost(nvml: Nvml, uuid: str) -> str:
    nvml.ask(uuid, Question.NAME)
    try:
        # The driver may remember the name; it must read the temperature from the GPU.
        nvml.ask(uuid, Question.TEMPERATURE)
    except NvmlError as error:
        return _LOST.get(error.name, "")
    return ""


def _highest(pairs: Any) -> dict[int, float]:
    loads: dict[int, float] = {}
    for pid, percent in pairs:
        loads[int(pid)] = max(loads.get(int(pid), 0.0), min(float(percent), 100.0) / 100)
    return loads


def state_and_users(nvml: Nvml, uuid: str) -> str:
    """Return the GPU's state and its other users, as JSON. Called in the process that measures on the GPU."""
    state = read_state(nvml, uuid)
    if nvml.tells_our_pids():
        strangers = [
            process for process in read_processes(nvml, uuid) or () if not is_ours_or_gone(process.pid)
        ]
        state = replace(state, used_by=names_of(busy_processes(strangers)))
    return json.dumps(state.to_json())


def busy_processes(processes: Iterable[GpuProcess]) -> list[GpuProcess]:
    """Return the processes that keep the GPU busy."""
    return [process for process in processes if process.load is not None and process.load >= BUSY_LOAD]


def names_of(processes: Iterable[GpuProcess]) -> str:
    """Return the names of processes for a message, the busiest first."""
    listed = sorted(processes, key=lambda process: (-(process.load or 0.0), process.pid))
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return ", ".join(str(process) for process in listed[:_MAX_NAMED]) + more


def is_ours_or_gone(pid: int) -> bool:
    """Return whether a process is this one, one that it started, or has ended."""
    if pid == os.getpid():
        return True
    try:
        return os.getpid() in [parent.pid for parent in psutil.Process(pid).parents()]
    except (psutil.Error, OSError):  # in a sandbox, a process looks gone if it is not ours, or is refused
        return not _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
