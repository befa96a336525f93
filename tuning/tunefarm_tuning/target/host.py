"""Describe this machine: its device model and its cores. Reads files, imports no compiler."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import uuid
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BOARD = Path("/proc/device-tree/model")
_CGROUP = Path("/sys/fs/cgroup/cpu.max")
_NOISE = re.compile(r"\(r\)|\(tm\)|\bcpu\b|\bprocessor\b|@.*|\b\d+-core\b", re.IGNORECASE)


def host_device_model() -> str:
    """Return this machine's device model: timings of one model are comparable.

    It is a slug of the CPU's name, its family and model numbers (virtual machines often give all CPUs of a maker one
    name) and the cores in use: ``"amd-epyc-f26m2-2c"``.
    """
    return device_model(_cpu_fields(), num_cores())


def device_model(cpu: dict[str, str], cores: int) -> str:
    """Return the device model of a CPU with so many cores in use, from its fields as `cpu_fields` returns them."""
    if "model name" in cpu:
        name = _slug(_NOISE.sub(" ", cpu["model name"]))
        if "cpu family" in cpu and "model" in cpu:
            name += f"-f{_slug(cpu['cpu family'])}m{_slug(cpu['model'])}"
    elif "CPU part" in cpu:  # Arm's processors have numbers instead of names
        name = f"arm-{_slug(cpu.get('CPU implementer', 'x'))}-{_slug(cpu['CPU part'])}"
    else:
        name = _slug(cpu.get("uarch", "") or platform.machine() or "unknown")
    board = _board()
    return "-".join(part for part in (board, name, f"{cores}c") if part)


def host_cpu() -> str:
    """Return the name of this machine's CPU and board, whatever its cores in use."""
    return device_model(_cpu_fields(), 0)


@cache
def num_cores() -> int:
    """Return how many physical cores this process may use, by its affinity and its control group."""
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or usable
    return max(1, int(min(physical, usable, _quota())))


def cpu_flags() -> frozenset[str]:
    """Return the CPU's features that the system has enabled (``"avx2"``); empty if it does not say."""
    cpu = _cpu_fields()
    return frozenset((cpu.get("flags") or cpu.get("Features") or "").split())


def cpu_fields(cpuinfo: str) -> dict[str, str]:
    """Return the fields of the first processor in a ``/proc/cpuinfo``; ``CPU part`` has the parts of all kinds of cores."""
    first = cpuinfo.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    return {**fields, "CPU part": " ".join(sorted(set(parts)))} if parts else fields


def _cpu_fields() -> dict[str, str]:
    try:
        return cpu_fields(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}


def _board() -> str:
    try:
        return _slug(_BOARD.read_text(encoding="utf-8", errors="replace").strip("\0"))
    except OSError:
        return ""


def _quota() -> float:
    try:
        quota, period = _CGROUP.read_text(encoding="ascii").split()
        return math.inf if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return math.inf


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]


def machine_id() -> str:
    """Return a hash of the system's id: it identifies the machine without revealing the id."""
    seed = f"{uuid.getnode():x}"
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        try:
            seed = path.read_text(encoding="ascii").strip() or seed
            break
        except (OSError, ValueError):
            continue
    return hashlib.sha256(f"tunefarm:{seed}".encode()).hexdigest()[:16]
