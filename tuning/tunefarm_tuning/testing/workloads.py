"""Small real tasks for tests of builders and runners, without a model file."""

from __future__ import annotations

from functools import cache

from tunefarm_tuning.process import ChildProcess
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TuningTask, Workload


@cache
def sample_workload(kind: str, **size: int | str) -> Workload:
    """Return a workload: ``matmul`` (n, dtype, wide), ``conv2d`` (size, channels, dtype, wide), ``softmax``, ``gather``, ``relu``, ``hostile`` (n)."""
    return Workload.from_json(_child().call(kind, size, timeout_sec=120))


@cache
def _child() -> ChildProcess:
    """One child for all workloads of a test run; it ends with this process."""
    return ChildProcess("tunefarm_tuning.tvm.children.sample_workloads")


def sample_task(kind: str, *, target: Target | str = "host", **size: int | str) -> TuningTask:
    """Return a task for a sample workload (see `sample_workload`)."""
    return TuningTask(workload=sample_workload(kind, **size), target=parse_target(target), weight=1)
