"""Pin benchmarks to one core of this machine, and start children that find these modules."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key

ROOT = Path(__file__).parents[2]


def one_core_target() -> Target:
    """Return this machine's target with one core, for which kernels are scheduled and timed."""
    return cores_target(1)


def cores_target(cores: int) -> Target:
    """Return this machine's target for a number of cores."""
    return Target.from_json({**detect_host_target().to_json(), "num-cores": cores})


def child(module: str) -> ChildProcess:
    """Return a child process for a module of this package; its kernels run on one thread."""
    return ChildProcess(
        f"benchmarks.search.{module}",
        limits=ChildLimits(memory_bytes=None),
        access=None,
        env={"PYTHONPATH": str(ROOT), "TVM_NUM_THREADS": "1"},
    )


def child_environment(threads: int) -> dict[str, str]:
    """Return what a child process needs to find the benchmarks, and for a number of threads."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}


def machine_facts() -> dict[str, str]:
    """Return the facts about this machine that a table shows."""
    return {
        "device": host_device_model(),
        "target": one_core_target().key,
        "toolchain": toolchain_key(),
        "python": platform.python_version(),
    }
