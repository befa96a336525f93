"""What NVIDIA's driver tells of the GPUs of this machine, through ``nvidia-smi``; nothing where there is none.

The one place that asks the driver. ``nvidia-smi`` comes with it, so there is no library whose version has to fit.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.errors import InvalidInputError

_TIMEOUT_SEC = 10.0
_MIB = 1 << 20
_VITALS = {
    "temperature.gpu": ("temperature_celsius", 1.0),
    "clocks.sm": ("clock_mhz", 1.0),
    "clocks.max.sm": ("clock_max_mhz", 1.0),
    "utilization.gpu": ("load", 0.01),
    "memory.used": ("memory_used_bytes", float(_MIB)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, as its driver tells of it.

    Attributes:
        index: Its number among the machine's, as ``nvidia-smi`` counts.
        uuid: What CUDA knows it by, whatever the order in which programs count: ``GPU-…``.
        arch: ``sm_90``; empty where the driver does not say.
        memory_bytes: None where the driver does not say (memory that is shared with the CPU, say).
    """

    index: int
    uuid: str
    name: str
    arch: str
    driver: str
    memory_bytes: int | None

    @property
    def model(self) -> str:
        """Return the device model that follows from its name."""
        return re.sub(r"[^a-z0-9._-]+", "-", self.name.lower()).strip("-._")[:100] or "gpu"

    def to_json(self) -> dict[str, Any]:
        """Return what people are told of it."""
        told = {
            name: getattr(self, name) for name in ("index", "uuid", "name", "arch", "driver", "memory_bytes")
        }
        return {name: value for name, value in told.items() if value not in (None, "")}


def find() -> list[Gpu]:
    """Return the GPUs of this machine, in the driver's order."""
    rows = _query("index", "uuid", "name", "compute_cap", "driver_version", "memory.total")
    return [
        Gpu(
            index=int(row["index"]),
            uuid=row["uuid"],
            name=row["name"],
            arch=f"sm_{row['compute_cap'].replace('.', '')}" if _is_number(row["compute_cap"]) else "",
            driver=row["driver_version"],
            memory_bytes=int(float(row["memory.total"])) * _MIB if _is_number(row["memory.total"]) else None,
        )
        for row in rows
        if row["index"].isdigit()
    ]


def choose(gpus: Sequence[Gpu], wanted: str) -> list[Gpu]:
    """Return the GPUs that a list like ``0,2`` means, in the driver's order.

    Args:
        gpus: What there is.
        wanted: ``all``, or numbers and UUIDs (or how these begin) with commas between.

    Raises:
        InvalidInputError: ``no-such-gpu``; the message lists what there is.
    """
    if wanted == "all":
        return list(gpus)
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        meant = [
            gpu for gpu in gpus if word == str(gpu.index) or (len(word) > 3 and gpu.uuid.startswith(word))
        ]
        if len(meant) != 1:
            there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus)
            raise InvalidInputError(
                f"this machine has no one GPU '{word[:80]}'; "
                + (f"nvidia-smi lists {there}" if there else "nvidia-smi lists none"),
                code="no-such-gpu",
            )
        chosen.add(meant[0].uuid)
    return [gpu for gpu in gpus if gpu.uuid in chosen]


def vitals(gpu: Gpu) -> dict[str, float]:
    """Return its ``temperature_celsius``, ``clock_mhz``, ``clock_max_mhz``, ``load`` (0 to 1) and ``memory_used_bytes``.

    What the driver does not tell is left out.
    """
    for row in _query(*_VITALS, of=gpu.uuid)[:1]:
        return {
            name: round(float(row[asked]) * factor, 2)
            for asked, (name, factor) in _VITALS.items()
            if _is_number(row[asked])
        }
    return {}


def _query(*fields: str, of: str | None = None) -> list[dict[str, str]]:
    """Ask ``nvidia-smi``; empty where it is not there, or does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        done = subprocess.run(
            [
                *(command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"),
                *([] if of is None else [f"--id={of}"]),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SEC,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None
