"""Whether threads share the work of a small kernel: a knob of ours, behind those of MetaSchedule.

MetaSchedule's CPU spaces split every kernel between the threads. Starting them takes some microseconds, the more the
more cores there are, and where a core has something else to do, all wait for it. So a kernel of little work has the choice,
and one of hardly any has none: one thread does it.
"""

from __future__ import annotations

from math import prod

from tvm import tirx
from tvm.s_tir import Schedule

from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.target import Target

NO_THREADS_POINTS = 1 << 12
"""Iterations up to which one thread is faster in any case: a microsecond or two."""
ALWAYS_THREADS_POINTS = 1 << 22
"""Iterations from which threads are worth it in any case: tens of microseconds at the best throughput of a core."""

_SHARED = "meta_schedule.parallel"


def thread_knob(schedule: Schedule, target: Target) -> Knob | None:
    """Return the knob of a workload; None where there is no choice, and what MetaSchedule does is right.

    Its values are 1 where threads share the work, and 0 where they do not.

    Args:
        schedule: Of the workload as it came.
        target: What to schedule for.
    """
    if target.kind != "llvm" or target.get("num-cores") == 1:
        return None
    work = _points(schedule)
    if work > ALWAYS_THREADS_POINTS:
        return None
    return Knob.categorical("threads", [0] if work <= NO_THREADS_POINTS else [1, 0])


def leave_out_threads(schedule: Schedule) -> None:
    """Have one thread do all of a sketch that was applied, and is not postprocessed yet."""
    root = schedule.get_sblock("root")
    if _SHARED in schedule.get(root).annotations:
        schedule.unannotate(root, _SHARED)


def _points(schedule: Schedule) -> int:
    """Return how many iterations all blocks have together; those of loops of unknown length count once."""
    total = 0
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        extents = [schedule.get(loop).extent for loop in schedule.get_loops(block)]
        total += prod(int(extent) for extent in extents if isinstance(extent, tirx.IntImm))
    return total
