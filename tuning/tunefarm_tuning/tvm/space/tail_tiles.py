"""Tiles that leave a tail: find the knobs that may have them, and put them into a sketch's trace.

TVM's sampling instruction for tiles knows only perfect ones, but its split takes any factors. Where the factors multiply to more
than the extent, each block inside gets a condition. So `with_tails` gives the split its factors as numbers, and
`with_marked_tails` marks the conditions as likely, as default schedules do (`loop_partitioning.mark_tails`): built with
`SPLIT_TAILS`, the loop over full tiles has no conditions.

TVM solves such a condition for the loop's variable. It cannot where the loop was fused with others for the threads, as the
condition then is on a remainder of the fused variable, and vectorised loops inside do not build. `unfuse_tails` splits such
fused loops again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import Instruction, Trace
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars

from tunefarm_tuning.space.tail_tiles import tail_extents
from tunefarm_tuning.tvm.base.tir import rebuilt, walk
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import mark_tails
from tunefarm_tuning.tvm.kernels.weight_packing import packable_weights
from tunefarm_tuning.workload.computation import Computation


def axis_tails(computation: Computation) -> tuple[tuple[int, ...], ...]:
    """Return for each axis of a computation the products, other than its extent, that its tiles may have."""
    writes = next((access for access in computation.accesses if access.writes), None)
    vector_axis = -1
    if writes is not None and writes.dims and len(writes.dims[-1]) == 1 and writes.dims[-1][0][1] == 1:
        vector_axis = writes.dims[-1][0][0]
    lanes = 0 if writes is None else computation.vector_bytes // writes.itemsize_bytes
    # Uneven parts make no reduction faster.
    return tuple(
        () if axis.reduces else tail_extents(axis.extent, lanes=lanes if number == vector_axis else 0)
        for number, axis in enumerate(computation.axes)
    )


def with_tails(trace: Trace, factors: Mapping[Any, Sequence[int]]) -> Trace:
    """Return a sketch's trace whose splits have the `factors` of some tiles, by sampling instruction, as numbers.

    The instructions that sample these tiles stay, unused, so that all traces of a sketch have equally many.
    """
    numbers = {
        variable: number
        for inst, tile in factors.items()
        for variable, number in zip(inst.outputs, tile, strict=True)
    }
    insts = []
    for inst in trace.insts:
        if inst.kind.name == "Split" and any(factor in numbers for factor in inst.inputs[1:]):
            loop, *sizes = inst.inputs
            inputs = [
                loop,
                *(tvm.tirx.IntImm("int32", numbers[size]) if size in numbers else size for size in sizes),
            ]
            insts.append(Instruction(inst.kind, inputs, list(inst.attrs), list(inst.outputs)))
        else:
            insts.append(inst)
    return Trace(insts, dict(trace.decisions.items()))


def with_marked_tails(schedule: Schedule) -> Schedule:
    """Return a schedule of the same kernel with its tails marked; it has no trace."""
    mod = schedule.mod
    return Schedule(
        tvm.IRModule({"main": mark_tails(unfuse_tails(mod["main"]))}, attrs=mod.attrs),
        debug_mask=0,
        error_render_level="none",
    )


def keeps_weight_order(mod: tvm.IRModule, block: Any, axes: Collection[int]) -> bool:
    """Return whether weights should keep their order, because TVM would pack them badly for tiles with tails.

    `axes` are the loops of `block` that are tiled with tails, by position.

    TVM packs a weight whose rows end within a tile as a flat sequence of elements, from which no vectors can be loaded. Tails
    along loops that the weights do not depend on change nothing.
    """
    weights = [mod["main"].params[number] for number in packable_weights(mod["main"])]
    variables = [block.iter_vars[axis].var for axis in axes]
    reads = [read for read in block.reads if any(read.source.same_as(weight) for weight in weights)]
    used = [variable for read in reads for dim in read.region for variable in undefined_vars(dim.min)]
    return bool(weights) and (not reads or any(var.same_as(other) for var in variables for other in used))


def unfuse_tails(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the kernel with parallel loops split if a tail's condition depends on a remainder of their variable."""
    return func.with_body(rebuilt(func.body, _unfused))


def _unfused(loop: Any) -> Any:
    if (
        not isinstance(loop, tirx.For)
        or loop.kind != tirx.ForKind.PARALLEL
        or not isinstance(loop.extent, tirx.IntImm)
    ):
        return loop
    extent = int(loop.extent)
    periods = {
        period for condition in _conditions(loop.body) for period in _periods(condition, loop.loop_var)
    }
    inside = min((period for period in periods if 1 < period < extent and extent % period == 0), default=0)
    if not inside:
        return loop
    dtype = loop.loop_var.ty.dtype
    outer, inner = (tirx.Var(f"{loop.loop_var.name}_{part}", dtype) for part in ("outer", "inner"))
    analyzer = Analyzer()
    analyzer.bind(outer, Range(0, extent // inside))
    analyzer.bind(inner, Range(0, inside))

    def with_split_index(realize: Any) -> Any:
        if not isinstance(realize, SBlockRealize):
            return realize

        def substituted(value: Any) -> Any:
            # TVM exposes no substitution to Python; an index map replaces it
            (index,) = tirx.IndexMap([loop.loop_var], [value], None).map_indices([outer * inside + inner])
            return analyzer.simplify(index)

        return SBlockRealize(
            [substituted(value) for value in realize.iter_values],
            substituted(realize.predicate),
            realize.block,
        )

    body = rebuilt(loop.body, with_split_index)
    body = tirx.For(inner, loop.min, tirx.IntImm(dtype, inside), tirx.ForKind.SERIAL, body)
    split = tirx.For(
        outer,
        loop.min,
        tirx.IntImm(dtype, extent // inside),
        loop.kind,
        body,
        None,
        loop.annotations,
        loop.step,
    )
    return _unfused(split)  # it may contain another loop with a tail


def _conditions(stmt: Any) -> Iterator[Any]:
    for node in walk(stmt):
        if isinstance(node, SBlockRealize):
            yield node.predicate


def _periods(condition: Any, variable: Any) -> Iterator[int]:
    """Yield the divisors of all remainders of a variable in a condition: after so many values the remainder starts again."""
    for node in walk(condition):
        if isinstance(node, tirx.FloorMod) and isinstance(node.b, tirx.IntImm):
            if node.a.same_as(variable):
                yield int(node.b)
            elif isinstance(node.a, tirx.FloorDiv) and node.a.a.same_as(variable):
                yield int(node.b) * int(node.a.b)
