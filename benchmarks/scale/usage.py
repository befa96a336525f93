"""Measure processor seconds and memory of groups of processes, with all their descendants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of one part of a farm.

    Attributes:
        cpu_sec: Since its processes began, those that ended meanwhile included.
        pss_bytes: Memory, with what processes share counted once between them.
        processes: How many there are.
    """

    cpu_sec: float
    pss_bytes: int
    processes: int


def usage_of(roots: Mapping[str, Iterable[int]]) -> dict[str, Usage]:
    """Return the usage of each part, which is named with the processes that it was started with."""
    children = _children()
    return {
        name: _usage([pid for root in pids for pid in tree(root, children)]) for name, pids in roots.items()
    }


def tree(root: int, children: Mapping[int, list[int]]) -> list[int]:
    """Return a process and all below it."""
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _stat(path)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    return children


def _stat(path: Path) -> list[str]:
    """Return the fields from the state on; none of a process that is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _usage(pids: Iterable[int]) -> Usage:
    ticks = pss_bytes = processes = 0
    for pid in pids:
        fields = _stat(Path(f"/proc/{pid}/stat"))
        if fields:
            ticks += sum(int(fields[index]) for index in (11, 12, 13, 14))  # own and of ended children
            pss_bytes += _pss_bytes(pid)
            processes += 1
    return Usage(cpu_sec=ticks / _TICKS_PER_SEC, pss_bytes=pss_bytes, processes=processes)


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
