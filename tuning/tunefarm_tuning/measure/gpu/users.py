"""Who else computes on a GPU: a kernel that shares it is timed wrongly, and nothing in its samples says so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace

import psutil

from tunefarm_tuning.measure.gpu.nvml import Nvml
from tunefarm_tuning.measure.gpu.reading import GpuProcess, read_processes, read_state

BUSY_PROCESS = 0.05
"""Load of another's process from which on it disturbs."""

_MOST_NAMED = 3


def state_and_users(nvml: Nvml, uuid: str) -> str:
    """Return, as JSON, how the GPU is, and who else computes on it. Called in the process that measures on it."""
    state = read_state(nvml, uuid)
    if nvml.tells_our_pids():
        strangers = [one for one in read_processes(nvml, uuid) or () if not is_ours_or_gone(one.pid)]
        state = replace(state, used_by=named(computing_of(strangers)))
    return json.dumps(state.to_json())


def computing_of(processes: Iterable[GpuProcess]) -> list[GpuProcess]:
    """Return those that keep the GPU busy."""
    return [one for one in processes if one.load is not None and one.load >= BUSY_PROCESS]


def named(processes: Iterable[GpuProcess]) -> str:
    """Return the processes as a person reads them, the busiest first."""
    listed = sorted(processes, key=lambda one: (-(one.load or 0.0), one.pid))
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(str(one) for one in listed[:_MOST_NAMED]) + more


def is_ours_or_gone(pid: int) -> bool:
    """Whether a process is this one, one that it started, or none any more: a session ends between two looks."""
    try:
        process = psutil.Process(pid)
        return pid == os.getpid() or os.getpid() in [parent.pid for parent in process.parents()]
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
