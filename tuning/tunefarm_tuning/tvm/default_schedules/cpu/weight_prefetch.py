"""Prefetch the weights of the next tiles of channels while those of the last ones are multiplied.

The weights of a network do not fit into the caches, so each kernel's come from memory. The first tile of results that needs some waits for
them: a convolution of 512 channels and 7 x 7 results took a third longer than its products. All its other tiles of results leave memory idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlockRealize

from tunefarm_tuning.tvm.base.tir import (
    REDUCES,
    is_annotated,
    loop_with,
    prefetch,
    rebuilt,
    substitute,
    uses,
    walk,
    without_annotation,
)
from tunefarm_tuning.tvm.default_schedules.stage import Machine, itemsize

_ANNOTATION = "tunefarm.weight_prefetch"
_SECOND_CACHE = 2
_LINE_BYTES = 64
_ZERO = tirx.const(0, "int64")


def prefetch_weights(
    sch: Any, block: Any, channel: int, width: int, tiles: Iterable[tuple[int, int, int]]
) -> None:
    """Let a scheduled product prefetch its weights, if several tiles of results use them.

    Those of a tile of channels have to be contiguous, all sums' one behind the other, and those of the tiles behind it have to follow. The
    innermost loop over sums has to be serial. Of sizes that only the run knows, fewer tiles than assumed leave some weights out.

    Args:
        sch: The schedule.
        block: The block that adds to the sums.
        channel: The block's axis along the channels.
        width: Elements of weights of a tile in a step of the sums.
        tiles: The axes along which the tile is repeated, the outer first; of each its number, the tile's size and how many tiles there are.
    """
    repeated = [tile for tile in tiles if tile[2] > 1]
    if repeated:
        sch.annotate(block, _ANNOTATION, [channel, width, *(number for tile in repeated for number in tile)])


def insert_prefetches(func: tirx.PrimFunc, _machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel whose annotated products prefetch weights: in each step of their sums a part of the next ones."""
    if not any(is_annotated(node, _ANNOTATION) for node in walk(func.body)):
        return func

    def with_prefetch(stmt: Any) -> Any:
        """Put the prefetch into the innermost loop over sums, and drop the annotation."""
        if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.SERIAL:
            return stmt
        realize = next((node for node in walk(stmt.body) if is_annotated(node, _ANNOTATION)), None)
        if realize is None:
            return stmt
        inside = [(loop.loop_var, _ZERO) for loop in walk(stmt.body) if isinstance(loop, tirx.For)]
        prefetches = [tirx.Evaluate(prefetch) for prefetch in _prefetches(realize, inside)]
        body = rebuilt(stmt.body, _without_annotation)
        return loop_with(stmt, body=tirx.SeqStmt([*prefetches, body]) if prefetches else body)

    return func.with_body(rebuilt(func.body, with_prefetch))


def _without_annotation(stmt: Any) -> Any:
    if not is_annotated(stmt, _ANNOTATION):
        return stmt
    return SBlockRealize(stmt.iter_values, stmt.predicate, without_annotation(stmt.block, _ANNOTATION))


def _prefetches(realize: Any, inside: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Return the prefetches of a step of the sums, none if there are no other weights; `inside` has the loops over the tile, at their start."""
    block = realize.block
    channel, width, *repeated = (int(number) for number in block.annotations[_ANNOTATION])
    values = [
        (axis.var, substitute(value, inside))
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
    ]
    sums = [
        (axis, value)
        for axis, (_, value) in zip(block.iter_vars, values, strict=True)
        if axis.iter_type == REDUCES
    ]
    tile: Any = _ZERO
    tiles = 1
    for axis, size, count in zip(*(repeated[start::3] for start in range(3)), strict=True):
        tile = tile * count + tirx.floordiv(values[axis][1], size)
        tiles *= count
    step: Any = _ZERO
    for axis, value in sums:
        step = step * axis.dom.extent + value
    steps = prod(int(axis.dom.extent) for axis, _ in sums)
    weights = _weights(block, values[channel][0], [values[axis][0] for axis in repeated[::3]])
    shape = [] if weights is None else [int(extent) for extent in weights.source.shape]
    if prod(shape) <= width * steps:
        return []
    first = [*((axis.var, _ZERO) for axis, _ in sums), *values]
    position: Any = _ZERO
    for dim, extent in zip(weights.region, shape, strict=True):
        position = position * extent + substitute(dim.min, first)
    # Behind the last weights may be no memory, which each prefetch would look up in vain.
    start = tirx.min(position + width * steps, tirx.const(prod(shape) - width * steps, "int64"))
    line = _LINE_BYTES // itemsize(str(weights.source.dtype))
    part = _part(width, max(-(-width // tiles), line // 2))
    share = tirx.min(tile, tirx.const(width // part - 1, "int64"))
    offset = start + (share * steps + step) * part
    outer = [_ZERO] * (len(shape) - 1)
    return [
        prefetch(tirx.BufferLoad(weights.source, [*outer, offset + ahead]), _SECOND_CACHE)
        for ahead in range(0, part, line)
    ]


def _part(width: int, least: int) -> int:
    """Return the smallest divisor of a width that is at least so large, so that whole tiles share the width."""
    return next(part for part in range(min(least, width), width + 1) if width % part == 0)


def _weights(block: Any, channel: Any, rows: Sequence[Any]) -> Any:
    """Return what a block reads for its channels and not for its rows; None if it has a single tile of channels."""

    def follows(region: Any, variables: Sequence[Any]) -> bool:
        return any(uses(dim.min, variables) for dim in region.region)

    return next((read for read in block.reads if follows(read, [channel]) and not follows(read, rows)), None)
