"""Describe this machine's GPU and PyTorch, and what the benchmark lacks here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tunefarm_tuning.core.errors import TunefarmError, UnknownTargetError
from tunefarm_tuning.measure.gpu.nvml import Nvml, NvmlError
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import read_state
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_workers.device.gpu import driver as gpus
from tunefarm_workers.device.gpu.driver import Gpu

_TIMEOUT_SEC = 60.0
_TORCH = (
    "import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda,"
    " 'cudnn': torch.backends.cudnn.version(), 'gpu': torch.cuda.is_available()}))"
)

Ask = Callable[[Sequence[str]], str]
"""Runs a command and returns what it prints; raises `OSError` or `SubprocessError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The GPU and the PyTorch of this machine, and what is missing.

    Attributes:
        gpu: The first GPU's ``name``, ``uuid``, ``arch``, ``driver``, ...; empty without one.
        torch: Versions of PyTorch in the Python that was asked; empty without one that sees the GPU.
        lacks: What cannot be done and why, a sentence each.
    """

    gpu: dict[str, Any] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The GPU as a target's name."""
        return f"cuda/{self.gpu['arch']}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ask(command: Sequence[str], timeout_sec: float = _TIMEOUT_SEC) -> str:
    """Run a command; return what it prints.

    Raises:
        subprocess.SubprocessError: If it fails, or takes too long.
    """
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_sec,
        check=True,
    )
    return done.stdout


def look(torch_python: str = sys.executable, *, run: Ask = ask, nvml: Nvml | None = None) -> Machine:
    """Inspect this machine.

    Args:
        torch_python: A Python interpreter to look for PyTorch in.
        run: Runs commands; tests put answers in its place.
        nvml: Whom to ask about GPUs; the driver by default.
    """
    nvml = nvml or open_nvml()
    try:
        gpu = _first(nvml)
    except TunefarmError as error:
        gpu, lacks = None, [f"no GPU: {error.message}"]
    else:
        lacks = _compiler(gpu) if gpu else [_why_none(nvml)]
    torch, without = _torch(torch_python, run)
    return Machine(gpu=gpu.to_json() if gpu else {}, torch=torch, lacks=tuple(lacks + without))


def readings(nvml: Nvml | None = None) -> dict[str, Any]:
    """Return the GPU's clocks, temperature, power and reasons for throttling now; empty where it does not say."""
    nvml = nvml or open_nvml()
    try:
        gpu = _first(nvml)
    except TunefarmError:
        return {}
    return read_state(nvml, gpu.uuid).to_json() if gpu else {}


def _first(nvml: Nvml) -> Gpu | None:
    """Return the GPU that is benchmarked: the first that is to be seen; None where there is none."""
    present = gpus.find(nvml)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "all"
    return next(iter(gpus.choose(present, visible)), None) if present else None


def _why_none(nvml: Nvml) -> str:
    try:
        nvml.driver()
    except NvmlError as error:
        return f"no NVIDIA driver: {error.message}"
    return "no GPU: the driver lists none that answers"


def _compiler(gpu: Gpu) -> list[str]:
    try:
        check_can_build(parse_target(f"cuda/{gpu.arch}"))
    except UnknownTargetError as error:
        return [f"no target for this GPU: {error.message}"]
    except TunefarmError as error:
        return [f"no compiler: {error.message}"]
    return []


def _torch(python: str, run: Ask) -> tuple[dict[str, Any], list[str]]:
    try:
        facts: dict[str, Any] = json.loads(run([python, "-c", _TORCH]))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}, [
            f"no PyTorch in {python}: nothing to compare with (--torch-python names another interpreter)"
        ]
    if not facts["gpu"]:
        return {}, [f"PyTorch {facts['torch']} of {python} sees no GPU: nothing to compare with"]
    return facts, []
