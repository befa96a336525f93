"""What NVIDIA's driver tells of the GPUs of this machine, through ``nvidia-smi``; nothing where there is none."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_TIMEOUT_SEC = 10.0


def describe() -> list[dict[str, Any]]:
    """Return each GPU's ``name``, ``arch`` (``sm_90``), ``driver`` and ``memory_bytes``."""
    return [
        {
            "name": row["name"],
            "arch": f"sm_{row['compute_cap'].replace('.', '')}",
            "driver": row["driver_version"],
            "memory_bytes": int(float(row["memory.total"]) * (1 << 20)),
        }
        for row in query("name", "compute_cap", "driver_version", "memory.total")
    ]


def vitals() -> list[dict[str, float]]:
    """Return each GPU's ``temperature_celsius``, ``clock_mhz`` and ``load`` (0 to 1); what it does not tell is left out."""
    names = {
        "temperature.gpu": ("temperature_celsius", 1.0),
        "clocks.sm": ("clock_mhz", 1.0),
        "utilization.gpu": ("load", 0.01),
    }
    return [
        {
            name: round(float(row[asked]) * factor, 2)
            for asked, (name, factor) in names.items()
            if _is_number(row[asked])
        }
        for row in query(*names)
    ]


def model_of(gpus: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the device model of a machine with these GPUs; None without one."""
    if not gpus:
        return None
    return re.sub(r"[^a-z0-9._-]+", "-", str(gpus[0]["name"]).lower()).strip("-._")[:100] or None


def query(*fields: str) -> list[dict[str, str]]:
    """Ask ``nvidia-smi``; empty where it is not there, or does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
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
