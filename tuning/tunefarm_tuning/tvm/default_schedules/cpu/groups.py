"""Prepare grouped convolutions: split the channel loop into a loop over groups and a loop inside a group.

The results of a group read the same inputs. Which inputs, follows from an integer division of the channel's index, which has
no stride; with two loops every access has one. Groups that do not fill a vector are joined until they do: their inputs lie
side by side, and `tvm.base.vector_loads` loads them so.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tvm import tirx
from tvm.s_tir.schedule import ScheduleError
from tvm.tirx import IndexMap

from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine

_SPATIAL = 0
_MIN_RESULTS = 4
"""Fewer results per group do not fill a vector."""
_MIN_GROUPS_IN_A_VECTOR = 4
"""With at least half a vector of results per group no shuffles are needed, and the kernel is as fast or faster."""
_MAX_INPUTS = 2
"""Maximum inputs per result: the inputs of a vector of results then lie in two vectors, as a shuffle needs."""


def split_channel_groups(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Split the channel loop of every grouped reduction if its groups divide it. Return False, so that other rules follow."""
    for block in blocks:
        _split(sch, block, machine)
    return False


def _split(sch: Any, block: Any, machine: Machine) -> None:
    node = sch.get(block)
    variables = list(node.iter_vars)
    if all(int(variable.iter_type) == _SPATIAL for variable in variables):
        return
    group_sizes = {
        (axis, int(part.b))
        for region in node.reads
        for dim in region.region
        for part in walk(dim.min)
        if isinstance(part, tirx.FloorDiv) and isinstance(part.b, tirx.IntImm)
        for axis, variable in enumerate(variables)
        if part.a.same_as(variable.var) and int(variable.iter_type) == _SPATIAL
    }
    if len(group_sizes) != 1:
        return
    ((axis, results),) = group_sizes
    extent = variables[axis].dom.extent
    if not isinstance(extent, tirx.IntImm) or int(extent) % results:
        return
    lanes = machine.lanes(str(node.writes[0].source.dtype))
    width = results
    if (
        results * _MIN_GROUPS_IN_A_VECTOR <= lanes
        and lanes % results == 0
        and int(extent) % lanes == 0
        and _group_stride(node, variables[axis].var) <= _MAX_INPUTS * results
    ):
        width = lanes
    if width < _MIN_RESULTS:
        return

    def by_groups(*indices: Any) -> list[Any]:
        channel = indices[axis]
        return [
            *indices[:axis],
            tirx.floordiv(channel, width),
            tirx.floormod(channel, width),
            *indices[axis + 1 :],
        ]

    with suppress(ScheduleError):
        sch.transform_block_layout(block, IndexMap.from_func(by_groups, ndim=len(variables)))


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
