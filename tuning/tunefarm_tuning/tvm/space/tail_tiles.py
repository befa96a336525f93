"""Tiles that leave a rest: which knobs may have them, and a sketch's trace with such splits in it.

TVM's sampling instruction for tiles knows perfect ones alone, its split takes any factors: where they multiply to more
than the extent, each block inside gets a condition. So the split is given the factors as numbers. The conditions are marked as
likely, as those of default schedules are (`default_schedule_rests`): built with `SPLIT_RESTS`, the loop over whole tiles is
without them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Instruction, Trace
from tvm.tirx.analysis import undefined_vars

from tunefarm_tuning.space.tail_tiles import rest_extents
from tunefarm_tuning.tvm.default_schedules.cpu.tails import mark_rests
from tunefarm_tuning.tvm.kernels.weight_packing import marked
from tunefarm_tuning.tvm.space.unfused_tails import unfuse_rests
from tunefarm_tuning.workload.computation import Computation


def axis_rests(computation: Computation, vector_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return for each axis of a computation what its tilings may multiply to besides its extent.

    Args:
        computation: What is tiled.
        vector_bytes: Of a register of the CPU. TVM's own answer, which features have, is 64 for every x86 CPU.
    """
    writes = next((one for one in computation.accesses if one.writes), None)
    vector_axis = -1
    if writes is not None and writes.dims and len(writes.dims[-1]) == 1 and writes.dims[-1][0][1] == 1:
        vector_axis = writes.dims[-1][0][0]
    lanes = 0 if writes is None else vector_bytes // writes.itemsize_bytes
    # A sum that is cut into uneven parts is none the faster for it.
    return tuple(
        () if axis.reduces else rest_extents(axis.extent, lanes=lanes if place == vector_axis else 0)
        for place, axis in enumerate(computation.axes)
    )


def with_rests(trace: Trace, factors: Mapping[Any, Sequence[int]]) -> Trace:
    """Return a trace with the factors of some tiles put into the splits that use them.

    The instructions that sample them stay, so that traces of a sketch have equally many; nothing uses them.

    Args:
        trace: Of a sketch.
        factors: By the sampling instruction.
    """
    numbers = {
        variable: number
        for inst, tile in factors.items()
        for variable, number in zip(inst.outputs, tile, strict=True)
    }
    insts = []
    for inst in trace.insts:
        if inst.kind.name == "Split" and any(one in numbers for one in inst.inputs[1:]):
            loop, *sizes = inst.inputs
            inputs = [
                loop,
                *(tvm.tirx.IntImm("int32", numbers[one]) if one in numbers else one for one in sizes),
            ]
            insts.append(Instruction(inst.kind, inputs, list(inst.attrs), list(inst.outputs)))
        else:
            insts.append(inst)
    return Trace(insts, dict(trace.decisions.items()))


def with_marks(schedule: Schedule) -> Schedule:
    """Return a schedule of what another has made, with what it leaves out marked; it has no trace."""
    mod = schedule.mod
    return Schedule(
        tvm.IRModule({"main": mark_rests(unfuse_rests(mod["main"]))}, attrs=mod.attrs),
        debug_mask=0,
        error_render_level="none",
    )


def leaves_weights(mod: tvm.IRModule, block: Any, axes: Collection[int]) -> bool:
    """Return whether weights are better left as they are than put in order by tiles with rests.

    TVM's order of a weight whose rows end within a tile is that of its elements numbered in a row: none that vectors can be
    read in. What has rests along other loops alone has the order that it would have without.

    Args:
        mod: A workload.
        block: The one that is tiled.
        axes: The places of those of its loops that are tiled with rests.
    """
    weights = [mod["main"].params[number] for number in marked(mod["main"])]
    variables = [block.iter_vars[axis].var for axis in axes]
    reads = [one for one in block.reads if any(one.source.same_as(weight) for weight in weights)]
    used = [one for read in reads for dim in read.region for one in undefined_vars(dim.min)]
    return bool(weights) and (not reads or any(var.same_as(one) for var in variables for one in used))
