"""Describe this machine: its device model and its cores. Reads files, imports no compiler."""

from __future__ import annotations

import math
import os
import platform
import re
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
    """Return the device model of a CPU with so many cores in use, from the fields of one processor in ``/proc/cpuinfo``."""
    if "model name" in cpu:
        name = _slug(_NOISE.sub(" ", cpu["model name"]))
        if "cpu family" in cpu and "model" in cpu:
            name += f"-f{_slug(cpu['cpu family'])}m{_slug(cpu['model'])}"
    elif "cpu part" in cpu:  # Arm's processors have numbers instead of names
        name = f"arm-{_slug(cpu.get('cpu implementer', 'x'))}-{_slug(cpu['cpu part'])}"
    else:
        name = _slug(cpu.get("uarch", "") or platform.machine() or "unknown")
    board = _board()
    return "-".join(part for part in (board, name, f"{cores}c") if part)


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


def _cpu_fields() -> dict[str, str]:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


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
