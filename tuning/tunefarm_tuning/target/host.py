"""Describe this machine: its device model and its cores. Reads files, imports no compiler."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import uuid
from collections.abc import Collection
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BOARD = Path("/proc/device-tree/model")
_CGROUP = Path("/sys/fs/cgroup/cpu.max")
_NOISE = re.compile(r"\(r\)|\(tm\)|\bcpu\b|\bprocessor\b|@.*|\b\d+-core\b", re.IGNORECASE)

_ARM_CORES = {
    "0xd03": "cortex-a53",
    "0xd05": "cortex-a55",
    "0xd08": "cortex-a72",
    "0xd09": "cortex-a73",
    "0xd0a": "cortex-a75",
    "0xd0b": "cortex-a76",
    "0xd0d": "cortex-a77",
    "0xd41": "cortex-a78",
    "0xd44": "cortex-x1",
    "0xd46": "cortex-a510",
    "0xd47": "cortex-a710",
    "0xd48": "cortex-x2",
    "0xd4d": "cortex-a715",
    "0xd4e": "cortex-x3",
    "0xd80": "cortex-a520",
    "0xd81": "cortex-a720",
    "0xd82": "cortex-x4",
}
"""LLVM's names of the cores that boards have beside others, by Arm's numbers (``CPU part``). LLVM asks for the CPU of a whole board."""


def host_device_model() -> str:
    """Return this machine's device model: timings of one model are comparable.

    It is a slug of the CPU's name, its family and model numbers (virtual machines often give all CPUs of a maker one
    name) and the cores in use: ``"amd-epyc-f26m2-2c"``. Of a board with two kinds of cores it names those that this process may use.
    """
    return device_model(_cpu_fields(_affinity()), num_cores())


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

    usable = len(_affinity()) or os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or usable
    return max(1, int(min(physical, usable, _quota())))


def cpu_flags() -> frozenset[str]:
    """Return the CPU's features that the system has enabled (``"avx2"``); empty if it does not say."""
    cpu = _cpu_fields()
    return frozenset((cpu.get("flags") or cpu.get("Features") or "").split())


def core_in_use() -> str:
    """Return LLVM's name of the only kind of cores that this process may use, on a board that has others, too; empty elsewhere."""
    return core_of_parts(_cpu_fields().get("CPU part", ""), _cpu_fields(_affinity()).get("CPU part", ""))


def core_of_parts(board: str, used: str) -> str:
    """Return LLVM's name of the core with the number `used`, if it is one kind of several on a board and known; else nothing."""
    return _ARM_CORES.get(used, "") if used != board else ""


def cpu_fields(cpuinfo: str, processors: Collection[int] = ()) -> dict[str, str]:
    """Return the fields of the first processor in a ``/proc/cpuinfo``; ``CPU part`` has the parts of all kinds of cores.

    With `processors`, only those with these numbers count, if they are there.
    """
    blocks = cpuinfo.split("\n\n")
    used = [block for block in blocks if _number(block) in processors] or blocks
    pairs = (line.split(":", 1) for line in used[0].splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", "\n\n".join(used), re.MULTILINE)
    return {**fields, "CPU part": " ".join(sorted(set(parts)))} if parts else fields


def _number(block: str) -> int | None:
    number = re.search(r"^processor\s*:\s*(\d+)\s*$", block, re.MULTILINE)
    return int(number[1]) if number else None


def _affinity() -> Collection[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()


def _cpu_fields(processors: Collection[int] = ()) -> dict[str, str]:
    try:
        return cpu_fields(_CPUINFO.read_text(encoding="utf-8", errors="replace"), processors)
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
