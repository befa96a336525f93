"""Default schedules of grouped convolutions, the first step: a loop over channels becomes one over groups and one within.

A group's results read the same inputs. Which ones is a division of the channel's number, along which nothing is walked by
any stride; by two loops, everything is. Groups that do not fill a vector are taken several at a time, as many as do: what their
results read lies side by side, and `lane_loads` reads it so.
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
_LEAST_RESULTS = 4
"""A group of fewer results fills no vector."""
_FEWEST_IN_A_VECTOR = 4
"""Groups: half a vector of one group's results needs no shuffles, and is as fast or faster."""
_MOST_INPUTS = 2
"""For each result: what a vector of results reads lies in two vectors then, as many as a shuffle takes."""


def split_groups(sch: Any, block: Any, machine: Machine) -> None:
    """Split the loop of a reduction that goes through groups, if there is one and it divides."""
    node = sch.get(block)
    variables = list(node.iter_vars)
    if all(int(one.iter_type) == _SPATIAL for one in variables):
        return
    found = {
        (place, int(part.b))
        for region in node.reads
        for dim in region.region
        for part in walk(dim.min)
        if isinstance(part, tirx.FloorDiv) and isinstance(part.b, tirx.IntImm)
        for place, variable in enumerate(variables)
        if part.a.same_as(variable.var) and int(variable.iter_type) == _SPATIAL
    }
    if len(found) != 1:
        return
    ((place, results),) = found
    extent = variables[place].dom.extent
    if not isinstance(extent, tirx.IntImm) or int(extent) % results:
        return
    lanes = machine.lanes(str(node.writes[0].source.dtype))
    width = results
    if (
        results * _FEWEST_IN_A_VECTOR <= lanes
        and lanes % results == 0
        and int(extent) % lanes == 0
        and _inputs_of_a_group(node, variables[place].var) <= _MOST_INPUTS * results
    ):
        width = lanes
    if width < _LEAST_RESULTS:
        return

    def by_groups(*indices: Any) -> list[Any]:
        channel = indices[place]
        return [
            *indices[:place],
            tirx.floordiv(channel, width),
            tirx.floormod(channel, width),
            *indices[place + 1 :],
        ]

    with suppress(ScheduleError):
        sch.transform_block_layout(block, IndexMap.from_func(by_groups, ndim=len(variables)))


def _inputs_of_a_group(node: Any, channel: Any) -> int:
    """Return how far apart the inputs of one group and of the next lie."""
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
