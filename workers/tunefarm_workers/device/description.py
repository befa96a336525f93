"""Describe this machine for the registration."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.gpu import gpu_target
from tunefarm_tuning.target.host import host_device_model, machine_id
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import versions
from tunefarm_workers.device.gpu.driver import Gpu
from tunefarm_workers.device.settings import AgentSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDescription:
    """The description of a device for the API.

    Attributes:
        kind: ``"cpu"`` or ``"cuda"``.
        device_model: Devices of one model give timings that can be compared.
        info: For people: ``cpu``, ``cores``, ``memory_bytes``, ``versions``, ``hostname``, ``machine_id``, ``system``, and
            ``gpus`` of a CUDA device: the one that it is.
    """

    name: str
    device_key: str
    kind: str
    target: Target
    device_model: str
    info: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the members of the body of ``POST /v1/devices`` that describe the machine."""
        return {
            "name": self.name,
            "device_key": self.device_key,
            "target": self.target.to_json(),
            "device_model": self.device_model,
            "info": dict(self.info),
        }

    @property
    def num_threads(self) -> int:
        """Threads that kernels run on: the target's cores."""
        cores = self.target.get("num-cores")
        return cores if isinstance(cores, int) else int(self.info["cores"])


def describe(settings: AgentSettings, gpu: Gpu | None = None) -> DeviceDescription:
    """Return the description of this machine. Takes seconds: a child process asks LLVM for the CPU's name.

    Raises:
        UnknownTargetError: If the target means nothing.
        InvalidInputError: ``invalid-device`` if a device model is needed and not given.
    """
    target = _target(parse_target(settings.target), gpu)
    model = settings.device_model or (gpu.model if gpu is not None else None)
    if model is None:
        if target.kind != "llvm":
            raise InvalidInputError(
                f"a device of kind {target.kind} needs --device-model",
                code="invalid-device",
                field="device_model",
            )
        model = host_device_model()
    return DeviceDescription(
        name=settings.name,
        device_key=settings.device_key,
        kind="cpu" if target.kind == "llvm" else target.kind,
        target=target,
        device_model=model,
        info={
            "cpu": _cpu_name(),
            "cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
            "memory_bytes": psutil.virtual_memory().total,
            "versions": versions(),
            "hostname": socket.gethostname(),
            "machine_id": machine_id(),
            **({"gpus": [gpu.to_json()]} if gpu is not None else {}),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
    )


def _target(target: Target, gpu: Gpu | None) -> Target:
    """Return the full target of a GPU if only its architecture was given, else the given target."""
    if gpu is None or not gpu.arch or target != gpu_target(gpu.arch):
        return target
    return gpu_target(gpu.arch, name=gpu.name, machine=platform.machine())


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
