"""Prepare grouped convolutions: split the channel loop into a loop over groups and a loop inside a group.

The results of a group read the same inputs. Which inputs, follows from an integer division of the channel's index, which has
no stride; with two loops every access has one. Groups that do not fill a vector are joined until they do: their inputs lie
side by side, and `tvm.base.vector_loads` loads them so.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.s_tir.schedule import ScheduleError
from tvm.sym import Analyzer
from tvm.tirx import IndexMap

from tunefarm_tuning.tvm.base.tir import SPATIAL, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine

_MIN_RESULTS = 4
"""Fewer results per group do not fill a vector."""
_MIN_GROUPS_IN_A_VECTOR = 4
"""With at least half a vector of results per group no shuffles are needed, and the kernel is as fast or faster."""
_MAX_INPUTS = 2
"""Maximum inputs per result: the inputs of a vector of results then lie in two vectors, as a shuffle needs."""


def split_channel_groups(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Split the channel loop of every grouped reduction if its groups divide it. Return False, so that other rules follow.

    So is the loop of a step behind it that reads fewer results of each group than there are (`transform.ragged_products`).
    """
    for block in blocks:
        if _split(sch, block, machine):
            _split_reader(sch, block)
    return False


def _split(sch: Any, block: Any, machine: Machine) -> bool:
    node = sch.get(block)
    variables = list(node.iter_vars)
    if all(int(variable.iter_type) == SPATIAL for variable in variables):
        return False
    group_sizes = _divisions(node)
    if len(group_sizes) != 1:
        return False
    ((axis, results),) = group_sizes
    extent = variables[axis].dom.extent
    if not isinstance(extent, tirx.IntImm) or int(extent) % results:
        return False
    lanes = machine.lanes(str(node.writes[0].source.dtype))
    width = results
    if (
        results * _MIN_GROUPS_IN_A_VECTOR <= lanes
        and lanes % results == 0
        and int(extent) % lanes == 0
        and _group_stride(node, variables[axis].var) <= _MAX_INPUTS * results
    ):
        width = lanes
    return width >= _MIN_RESULTS and _split_loop(sch, block, axis, width)


def _split_reader(sch: Any, block: Any) -> None:
    """Split the loop of the step behind a reduction by groups, if it reads a part of each; their results get a dimension of their own."""
    readers = list(sch.get_consumers(block))
    divisions = _divisions(sch.get(readers[0])) if len(readers) == 1 else set()
    if len(divisions) != 1:
        return
    reader = readers[0]
    ((axis, size),) = divisions
    read, kept = (sch.get(stage).writes[0].source.shape[-1] for stage in (block, reader))
    if axis != len(list(sch.get(reader).iter_vars)) - 1 or not all(
        isinstance(n, tirx.IntImm) for n in (read, kept)
    ):
        return
    read, kept = int(read), int(kept)
    if read <= kept or kept % size or read % (kept // size) or not _split_loop(sch, reader, axis, size):
        return
    room = read // (kept // size)
    sch.transform_layout(
        block, ("write", 0), lambda *indices: [*indices[:-1], indices[-1] // room, indices[-1] % room]
    )
    for stage in (block, reader):
        _simplify_divisions(sch, stage)


def _simplify_divisions(sch: Any, block: Any) -> None:
    """Compute the quotients and remainders in a block whose variables' ranges tell them; TVM splits a loop without these."""
    node = sch.get(block)
    analyzer = Analyzer()
    for variable in node.iter_vars:
        analyzer.bind(variable.var, Range(0, variable.dom.extent))
    simplified = tvm_ffi.structural_map(node, ((tirx.FloorDiv, tirx.FloorMod), analyzer.simplify))
    sch.state.replace(sch.get_sref(block), simplified, {node: simplified})


def _divisions(node: Any) -> set[tuple[int, int]]:
    """Return the variables by whose whole quotients a block reads, by their position, with the divisor."""
    variables = list(node.iter_vars)
    return {
        (axis, int(part.b))
        for region in node.reads
        for dim in region.region
        for part in walk(dim.min)
        if isinstance(part, tirx.FloorDiv) and isinstance(part.b, tirx.IntImm)
        for axis, variable in enumerate(variables)
        if part.a.same_as(variable.var) and int(variable.iter_type) == SPATIAL
    }


def _split_loop(sch: Any, block: Any, axis: int, width: int) -> bool:
    """Split a block's loop in two, the inner one of `width` iterations; return whether it could be."""

    def by_groups(*indices: Any) -> list[Any]:
        channel = indices[axis]
        return [
            *indices[:axis],
            tirx.floordiv(channel, width),
            tirx.floormod(channel, width),
            *indices[axis + 1 :],
        ]

    try:
        sch.transform_block_layout(block, IndexMap.from_func(by_groups, ndim=len(sch.get(block).iter_vars)))
    except ScheduleError:
        return False
    return True


def _group_stride(node: Any, channel: Any) -> int:
    """Return the elements between the inputs of one group and of the next."""
    return max(
        (
            int(part.b)
            for region in node.reads
            for dim in region.region
            for part in walk(dim.min)
            if isinstance(part, tirx.Mul) and isinstance(part.b, tirx.IntImm)
            if isinstance(part.a, tirx.FloorDiv) and part.a.a.same_as(channel)
        ),
        default=1,
    )
