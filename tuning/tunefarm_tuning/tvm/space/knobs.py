"""The knobs of a sketch: the sampling instructions of its trace, and the choice of threads for small workloads.

MetaSchedule's CPU spaces split every kernel among the threads. Starting these takes some microseconds, the more the more cores
there are, and where a core is busy with something else, all threads wait for it. So a kernel of little work has a knob for
that, and one of hardly any has no choice: it runs on one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any

import numpy as np
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tunefarm_tuning.space.config import Decision
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.space.tail_tiles import num_tails
from tunefarm_tuning.target.target import Target

TILE, PARTITIONED_TILE = "SamplePerfectTile", "SamplePartitionedTile"
CATEGORICAL, LOCATION = "SampleCategorical", "SampleComputeLocation"

NO_THREADS_POINTS = 1 << 12
"""Iterations up to which one thread is faster in any case: a microsecond or two."""
ALWAYS_THREADS_POINTS = 1 << 22
"""Iterations from which threads are worth it in any case: tens of microseconds at the best throughput of a core."""

_SHARED = "meta_schedule.parallel"


def thread_knob(schedule: Schedule, target: Target) -> Knob | None:
    """Return an unscheduled workload's knob for threads; None if it needs none because threads always share the work.

    The value 1 means that threads share the work, 0 that they do not.
    """
    if target.kind != "llvm" or target.get("num-cores") == 1:
        return None
    work = _points(schedule)
    if work > ALWAYS_THREADS_POINTS:
        return None
    return Knob.categorical("threads", [0] if work <= NO_THREADS_POINTS else [1, 0])


def leave_out_threads(schedule: Schedule) -> None:
    """Let one thread run a sketch that was applied but not yet post-processed."""
    root = schedule.get_sblock("root")
    if _SHARED in schedule.get(root).annotations:
        schedule.unannotate(root, _SHARED)


def _points(schedule: Schedule) -> int:
    """Return the iterations of all blocks together; a loop of unknown extent counts as one."""
    total = 0
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        extents = [schedule.get(loop).extent for loop in schedule.get_loops(block)]
        total += prod(int(extent) for extent in extents if isinstance(extent, tirx.IntImm))
    return total


def choice_of(inst: Any) -> str:
    """Return a text that is equal for instructions with equal choices, whatever their variables are called."""
    return f"{inst.kind.name} {inst.inputs[0] if inst.kind.name == LOCATION else ''} {inst.attrs}"


def sampling(trace: Trace) -> Iterator[Any]:
    """Yield the sampling instructions of a trace, in order, up to its post-processing."""
    for inst in trace.insts:
        name = inst.kind.name
        if name == "EnterPostproc":
            return
        if name in (TILE, PARTITIONED_TILE, CATEGORICAL, LOCATION):
            yield inst


def instructions_of(trace: Trace) -> str:
    """Return the instructions of a trace without their decisions: equal for all traces of a sketch."""
    return "\n".join(
        str(line) for line in Trace(trace.simplified(remove_postproc=True).insts, {}).as_python()
    )


def decision_of(trace: Trace, inst: Any) -> Decision:
    """Return a sampling instruction's decision in a trace: a tile's factors, or a number."""
    decision = trace.get_decision(inst)
    if inst.kind.name in (TILE, PARTITIONED_TILE):
        return tuple(int(factor) for factor in decision)
    return int(decision)


def is_legal(inst: Any, present: Decision, decision: Decision, tail_products: Collection[int]) -> bool:
    """Return whether TVM accepts a decision unchanged; it silently corrects some illegal ones, and crashes on others.

    Args:
        inst: The sampling instruction.
        present: A decision of this instruction that is legal.
        decision: The decision to check.
        tail_products: Products that the factors of a tile with a tail may have.
    """
    if isinstance(present, tuple):
        return (
            isinstance(decision, tuple)
            and len(decision) == len(present)
            and min(decision) >= 1
            and (
                prod(decision) == prod(present)
                or (prod(decision) in tail_products and _leaves_one_tail(inst, present, decision))
            )
            and (
                inst.kind.name != PARTITIONED_TILE
                or prod(decision[int(inst.attrs[1]) :]) % int(inst.attrs[2]) == 0
            )
        )
    if isinstance(decision, tuple):
        return False
    if inst.kind.name == CATEGORICAL:
        return 0 <= decision < len(inst.attrs[0])
    return -2 <= decision < 1 << 31


def _leaves_one_tail(inst: Any, present: tuple[int, ...], decision: tuple[int, ...]) -> bool:
    tails = num_tails(np.array([decision], dtype=np.int64), prod(present))
    return int(tails[0]) == 1 and decision[-1] <= int(inst.attrs[1])


def legal_locations(schedule: Schedule, block: Any) -> set[int]:
    """Return the legal compute locations of a block at the present point of a trace's run.

    TVM takes a requested location if it is legal, and else the next lower legal one; so the requests go from the top down.
    """
    locations: set[int] = set()
    ask = 1 << 20
    trial = schedule.copy()  # a request changes only the trace of the copy
    while True:
        trial.sample_compute_location(block, decision=ask)
        location = int(trial.trace.get_decision(trial.trace.insts[-1]))
        if location in locations:
            return locations
        locations.add(location)
        if location > ask or location <= -2:
            return locations
        ask = location - 1
