"""What this machine has of what the benchmark needs, and in plain words what it lacks."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tunefarm_tuning.cuda_toolkit import check_can_build
from tunefarm_tuning.errors import TunefarmError, UnknownTargetError
from tunefarm_tuning.targets import parse_target

_FACTS = ("name", "compute_cap", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem")
_READINGS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_throttle_reasons.active")
_TIMEOUT_SEC = 60.0
_TORCH = (
    "import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda,"
    " 'cudnn': torch.backends.cudnn.version(), 'gpu': torch.cuda.is_available()}))"
)

Ask = Callable[[Sequence[str]], str]
"""Runs a command and returns what it prints; raises `OSError` or `SubprocessError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is.

    Attributes:
        gpu: The first GPU's ``name``, ``compute_cap``, ``driver_version``, ...; empty without one.
        torch: Versions of PyTorch in the Python that was asked; empty without one that sees the GPU.
        lacks: What cannot be done and why, a sentence each.
    """

    gpu: dict[str, str] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The GPU as a target's name."""
        return f"cuda/sm_{self.gpu['compute_cap'].replace('.', '')}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ask(command: Sequence[str]) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SEC,
        check=True,
    )
    return done.stdout


def look(torch_python: str = sys.executable, *, asked: Ask = ask) -> Machine:
    """Find out what there is.

    Args:
        torch_python: A Python interpreter to look for PyTorch in.
        asked: Runs commands; tests put answers in its place.
    """
    gpu, lacks = _gpu(asked)
    if gpu:
        lacks += _compiler(gpu)
    torch, without = _torch(torch_python, asked)
    return Machine(gpu=gpu, torch=torch, lacks=tuple(lacks + without))


def readings(*, asked: Ask = ask) -> dict[str, str]:
    """Return the GPU's clocks, temperature, power and reasons for throttling now; empty where it does not say."""
    try:
        return _query(_READINGS, asked)
    except (OSError, subprocess.SubprocessError):
        return {}


def _gpu(asked: Ask) -> tuple[dict[str, str], list[str]]:
    if asked is ask and shutil.which("nvidia-smi") is None:
        return {}, ["no NVIDIA driver: there is no nvidia-smi on the PATH"]
    try:
        found = _query(_FACTS, asked)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stdout", None) or str(error)
        return {}, [f"no GPU: nvidia-smi says: {' '.join(str(said).split())[:200]}"]
    if not found:
        return {}, ["no GPU: nvidia-smi lists none"]
    return found, []


def _query(names: Sequence[str], asked: Ask) -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    rows = [row for row in csv.reader(io.StringIO(asked(command))) if len(row) == len(names)]
    return dict(zip(names, (cell.strip() for cell in rows[0]), strict=True)) if rows else {}


def _compiler(gpu: dict[str, str]) -> list[str]:
    try:
        check_can_build(parse_target(f"cuda/sm_{gpu['compute_cap'].replace('.', '')}"))
    except UnknownTargetError as error:
        return [f"no target for this GPU: {error.message}"]
    except TunefarmError as error:
        return [f"no compiler: {error.message}"]
    return []


def _torch(python: str, asked: Ask) -> tuple[dict[str, Any], list[str]]:
    try:
        found: dict[str, Any] = json.loads(asked([python, "-c", _TORCH]))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}, [
            f"no PyTorch in {python}: nothing to compare with (--torch-python names another interpreter)"
        ]
    if not found["gpu"]:
        return {}, [f"PyTorch {found['torch']} of {python} sees no GPU: nothing to compare with"]
    return found, []
