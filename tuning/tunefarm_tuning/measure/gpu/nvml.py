"""Asks NVIDIA's driver through NVML (``nvidia-ml-py``). No other module does.

If the driver's library is missing there is no GPU. Answers are not interpreted here, but in `reading` and `state`.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.core.untrusted_text import clean

_HOSTS_PIDS = "pid:[4026531836]"
"""Linux' initial PID namespace. In any other namespace the driver's pids differ from those that this process sees."""


class NvmlError(TunefarmError):
    """NVML refused; `name` is NVML's own: ``NVML_ERROR_NOT_SUPPORTED``, ``NVML_ERROR_GPU_IS_LOST``, ..."""

    default_code = "nvml"

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(message or name.removeprefix("NVML_ERROR_").replace("_", " ").lower())
        self.name = name


NOT_INSTALLED = "NVML_ERROR_NOT_INSTALLED"
"""A name of our own: the binding is not installed, so nothing is known about the driver."""


class Question(StrEnum):
    """A question about a GPU. Answers are JSON values."""

    NAME = "name"
    COMPUTE_CAPABILITY = "compute_capability"  # [9, 0]
    MEMORY = "memory"  # bytes: [total, used]
    CLOCK = "clock"  # MHz of the multiprocessors
    CLOCK_MAX = "clock_max"
    MEMORY_CLOCK = "memory_clock"
    MEMORY_CLOCK_MAX = "memory_clock_max"
    TEMPERATURE = "temperature"  # degrees Celsius
    POWER = "power"  # mW
    POWER_LIMIT = "power_limit"
    LOAD = "load"  # per cent of the recent time in which a kernel ran
    EVENTS = "events"  # bits: reasons for which the clock is not higher
    MIG = "mig"  # whether it is divided into MIG instances
    PROCESSES = "processes"  # that have a CUDA context: [[pid, bytes or null, name or null], ...]
    PROCESS_LOADS = "process_loads"  # of the last seconds: [[pid, per cent], ...]


class Nvml(Protocol):
    """NVML's answers.

    Concurrency: any thread.
    Failure: `NvmlError`. A driver in trouble may not answer at all.
    """

    def driver(self) -> str:
        """Return the driver's version."""
        ...

    def uuids(self) -> list[str | NvmlError]:
        """Return the GPUs' UUIDs in the driver's order; an error for a GPU that has none, such as one that fell off the bus."""
        ...

    def ask(self, uuid: str, question: Question) -> Any:
        """Return a GPU's answer."""
        ...

    def tells_our_pids(self) -> bool:
        """Return whether the pids that it tells are those that this process sees."""
        ...


class NvmlLibrary:
    """Implements `Nvml` with the driver's library, which is loaded at the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: ModuleType | None = None

    def driver(self) -> str:
        return str(self._call(lambda nvml: nvml.nvmlSystemGetDriverVersion()))

    def uuids(self) -> list[str | NvmlError]:
        return [
            self._uuid(number) for number in range(int(self._call(lambda nvml: nvml.nvmlDeviceGetCount())))
        ]

    def ask(self, uuid: str, question: Question) -> Any:
        return self._call(lambda nvml: _ASKED[question](nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)))

    def tells_our_pids(self) -> bool:
        try:
            return str(Path("/proc/self/ns/pid").readlink()) == _HOSTS_PIDS
        except OSError:
            return False

    def _uuid(self, number: int) -> str | NvmlError:
        try:
            return str(
                self._call(lambda nvml: nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number)))
            )
        except NvmlError as error:
            return error

    def _call(self, question: Callable[[Any], Any]) -> Any:
        try:
            nvml = importlib.import_module(_BINDING)
        except ImportError as error:
            raise NvmlError(
                NOT_INSTALLED,
                "nvidia-ml-py, which asks NVIDIA's driver, is missing: install tunefarm[device]",
            ) from error
        try:
            with self._lock:
                if self._library is None:
                    nvml.nvmlInit()
                    self._library = nvml
            return question(nvml)
        except NvmlError:
            raise
        except Exception as error:
            known = _known(nvml, error)
            if known.name in _START_ANEW:
                with self._lock:
                    self._library = None
            raise known from error


_BINDING = "pynvml"


def preload() -> None:
    """Import the binding without asking anything, so that forked processes need not import it."""
    with contextlib.suppress(ImportError):
        importlib.import_module(_BINDING)


_START_ANEW = {
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
}


def _known(nvml: Any, error: Exception) -> NvmlError:
    """Return our error for any error of the binding, which raises several kinds and meets drivers of any age."""
    if isinstance(error, nvml.NVMLError):
        return NvmlError(_name(nvml, getattr(error, "value", -1)))
    if isinstance(error, nvml.NVMLLibraryMismatchError):
        return NvmlError("NVML_ERROR_FUNCTION_NOT_FOUND")
    return NvmlError("NVML_ERROR_UNKNOWN", f"{type(error).__name__}: {clean(str(error), 200)}")


def _name(nvml: Any, code: int) -> str:
    names = [name for name, value in vars(nvml).items() if name.startswith("NVML_ERROR_") and value == code]
    return names[0] if names else f"NVML_ERROR_{code}"


def _processes(nvml: Any, handle: Any) -> list[list[Any]]:
    return [
        [
            int(process.pid),
            None if process.usedGpuMemory is None else int(process.usedGpuMemory),
            _process_name(nvml, process.pid),
        ]
        for process in _running(nvml, handle)
    ]


def _running(nvml: Any, handle: Any) -> list[Any]:
    # By version: the name without a version is that of the binding's version, and drivers may be older.
    for version in ("v3", "v2"):
        ask = getattr(nvml, f"nvmlDeviceGetComputeRunningProcesses_{version}", None)
        if ask is None:
            continue
        try:
            return list(ask(handle))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
    raise NvmlError("NVML_ERROR_FUNCTION_NOT_FOUND")


def _process_name(nvml: Any, pid: int) -> str | None:
    try:
        return str(nvml.nvmlSystemGetProcessName(pid))
    except (nvml.NVMLError, ValueError):  # it ended, it is another user's, or its name is no text
        return None


def _process_loads(nvml: Any, handle: Any) -> list[list[int]]:
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, time.time_ns() // 1000 - _RECENT_MICROSEC)
    except nvml.NVMLError as error:
        # No process used it recently: with success and no samples, the binding raises success.
        if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_SUCCESS):
            return []
        raise
    return [[int(sample.pid), int(sample.smUtil)] for sample in samples]


def _memory(nvml: Any, handle: Any) -> list[int]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return [int(memory.total), int(memory.used)]


def _events(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))  # as drivers before 535 call it


_RECENT_MICROSEC = 2_000_000

_ASKED: Mapping[Question, Callable[[Any, Any], Any]] = {
    Question.NAME: lambda nvml, gpu: str(nvml.nvmlDeviceGetName(gpu)),
    Question.COMPUTE_CAPABILITY: lambda nvml, gpu: list(nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    Question.MEMORY: _memory,
    Question.CLOCK: lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    Question.CLOCK_MAX: lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    Question.MEMORY_CLOCK: lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
    Question.MEMORY_CLOCK_MAX: lambda nvml, gpu: int(
        nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    ),
    Question.TEMPERATURE: lambda nvml, gpu: int(
        nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
    ),
    Question.POWER: lambda nvml, gpu: int(nvml.nvmlDeviceGetPowerUsage(gpu)),
    Question.POWER_LIMIT: lambda nvml, gpu: int(nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)),
    Question.LOAD: lambda nvml, gpu: int(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    Question.EVENTS: _events,
    Question.MIG: lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    Question.PROCESSES: _processes,
    Question.PROCESS_LOADS: _process_loads,
}
