"""Schedule stages without a reduction: elementwise operators, copies, transposes, concatenations, paddings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_tuning.tvm.default_schedules.access import loads_in_order, loads_vectors, nominal_size
from tunefarm_tuning.tvm.default_schedules.cpu.joined_vectors import join_in_pairs
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import TAIL_HINT, partition_points
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, stage_of

PARALLEL_POINTS = 1 << 15
"""Least number of elements for several threads: some microseconds of work."""
_COSTLY = 8
"""Weight of a costly element, in cheap ones."""
_TRANSPOSE_ROWS = 16
_LEAST_TRANSPOSED = 1 << 12
_MAX_UNROLLED = 64
_MAX_PIECES = 64
_UNROLLED_BY_LLVM = 32
"""Most iterations of a loop that LLVM unrolls. It then vectorises the loop around it, whose elements lie far apart."""
_LONG_ROW = 64
LEAST_VECTORS = 4
"""Vectors of a loop that may have a tail; one of 100 elements takes as long as of 112."""
_LEAST_REPEATED = 4
"""Lanes of a vector that is read by a shuffle."""


def hint_tail(sch: Any, loop: Any) -> None:
    """Make TVM compile the tail of a loop separately, so that the main part has no conditions."""
    sch.annotate(loop, TAIL_HINT, 1)


def is_worth_threads(stage: Stage) -> bool:
    """Return whether a stage has enough work for several threads."""
    return stage.points * (_COSTLY if stage.is_costly else 1) >= PARALLEL_POINTS


def reads_indices(stage: Stage) -> bool:
    """Return whether a stage may read indices; TVM 0.27 then mixes up 32 and 64 bits in the tail of a loop."""
    return any(read.dtype in ("int64", "uint64") for read in stage.reads)


def is_transposed_apart(sch: Any, stage: Stage, consumers: Sequence[Any]) -> bool:
    """Return whether a transpose stays a stage, since a concatenation or a padding reads it: those copy vectors if nothing is transposed in them."""
    last = len(stage.extents) - 1
    transposes = any(abs(read.strides[last] or 0) > 1 for read in stage.reads)
    is_worth_it = stage.extents[last] > 1 and stage.points >= _LEAST_TRANSPOSED
    return transposes and is_worth_it and any(partition_points(sch, block) for block in consumers)


def schedule_elementwise(sch: Any, block: Any, machine: Machine) -> bool:
    """Schedule a stage without a reduction; return whether the block is one."""
    stage = stage_of(sch, block)
    if stage is None or not stage.is_injective or len(stage.writes) != 1:
        return False
    loops = list(sch.get_loops(block))
    lanes = machine.lanes(stage.writes[0].dtype)
    last = len(loops) - 1
    if stage.writes[0].strides[last] not in (0, 1):
        _parallel(sch, loops, stage, len(loops))
        return True
    across = _loop_across(stage, last)
    if across is not None:
        _transpose(sch, loops, stage, across)
        return True
    points = partition_points(sch, block) if stage.selects else {}
    in_order = all(read.strides[last] in (0, 1) for read in stage.reads) or loads_in_order(sch.get(block))
    if last in points and in_order and _partition(sch, loops, stage, points[last], lanes):
        return True
    if (
        not in_order
        and not points
        and machine.core.registers
        and _vectorize_runs(sch, block, stage, machine.vector_bytes)
    ):
        return True
    if not in_order and not points and (_repeat(sch, loops, stage, lanes) or _interleave(sch, loops, stage)):
        return True
    behind = _behind_points(stage, points, lanes)
    if points and not behind and in_order and _partition_rows(sch, loops, stage, points, lanes):
        return True
    start = max(_contiguous_from(stage), behind)
    count = math.prod(stage.extents[start:])
    fused = sch.fuse(*loops[start:]) if start < last else loops[last]
    if count < 2 or not in_order or (count % lanes and (behind or reads_indices(stage))):
        _parallel(sch, [*loops[:start], fused], stage, start + (start == 0))
        return True
    outer, inner = _split_lanes(sch, fused, count, lanes)
    sch.vectorize(inner)
    alone = start == 0
    _parallel(sch, [*loops[:start], outer], stage, 1 if alone else start)
    return True


def vectorize_inner(
    sch: Any,
    loops: list[Any],
    lanes: int,
    *,
    unroll: bool,
    may_have_tail: bool = False,
    joined: bool = False,
) -> None:
    """Vectorise the innermost of a block's own `loops` (outermost first), and unroll the others if they have few iterations.

    The vector has `lanes` elements, halved until they divide the innermost loop, or else a tail. Those that are `joined` are half a vector
    of the CPU's each.
    """
    extent = nominal_size(sch.get(loops[-1]).extent)
    if may_have_tail and extent > lanes:
        sch.vectorize(_split_lanes(sch, loops[-1], extent, lanes)[1])
        return
    while lanes > 1 and extent % lanes:
        lanes //= 2
    others = loops[:-1]
    if lanes > 1:
        if extent > lanes:
            outer, inner = sch.split(loops[-1], [None, lanes])
            others = [*others, outer]
            if joined:
                join_in_pairs(sch, outer)
        else:
            inner = loops[-1]
        sch.vectorize(inner)
    else:
        others = loops
    count = math.prod(nominal_size(sch.get(loop).extent) for loop in others)
    if unroll and count <= _MAX_UNROLLED:
        for loop in others:
            sch.unroll(loop)


def _split_lanes(sch: Any, loop: Any, extent: int, lanes: int) -> tuple[Any, Any]:
    """Split a loop into vectors, shorter ones where these fit a short loop; return the loop over vectors and the loop inside one."""
    fitting = lanes
    while fitting > 1 and extent % fitting:
        fitting //= 2
    is_short = extent < LEAST_VECTORS * lanes
    if extent < lanes or (is_short and fitting >= min(4, lanes)):
        lanes = max(1, fitting)
    outer, inner = sch.split(loop, [None, lanes])
    if extent % lanes:
        hint_tail(sch, outer)
    return outer, inner


def _parallel(sch: Any, loops: list[Any], stage: Stage, most: int) -> None:
    """Let threads share the outermost loops of a stage."""
    if not is_worth_threads(stage):
        return
    count = max(1, most)
    fused = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    if nominal_size(sch.get(fused).extent) > 1:
        sch.parallel(fused)


def _partition(sch: Any, loops: list[Any], stage: Stage, points: list[int], lanes: int) -> bool:
    """Partition the last loop, unless the pieces would be too many or too short; return whether it was partitioned."""
    edges = [0, *points, stage.extents[-1]]
    pieces = [end - start for start, end in itertools.pairwise(edges)]
    width = math.gcd(lanes, *edges)
    vectors = width >= min(4, lanes)
    if len(pieces) > _MAX_PIECES or (not vectors and max(pieces) <= _UNROLLED_BY_LLVM):
        return False
    if len(loops) > 1:
        _parallel(sch, loops[:-1], stage, len(loops) - 1)
    loop = loops[-1]
    if vectors:
        loop, inner = sch.split(loop, [None, width])
        sch.vectorize(inner)
    step = width if vectors else 1
    sch.loop_partition(loop, [*(piece // step for piece in pieces[:-1]), None])
    return True


def _partition_rows(
    sch: Any, loops: list[Any], stage: Stage, points: Mapping[int, Sequence[int]], lanes: int
) -> bool:
    """Partition loops with short ones inside, as the columns of a padded image of few channels; return whether they were partitioned."""
    axis = max(points)
    row = math.prod(stage.extents[axis + 1 :])
    edges = [0, *(point * row for point in points[axis]), stage.extents[axis] * row]
    pieces = [end - start for start, end in itertools.pairwise(edges)]
    if _contiguous_from(stage) > axis or len(pieces) > _MAX_PIECES or max(pieces) < lanes:
        return False
    if math.prod(stage.extents[:axis]) == 1 and is_worth_threads(stage):
        return False  # threads share the rows
    if axis:
        _parallel(sch, loops[:axis], stage, axis)
    sch.loop_partition(sch.fuse(*loops[axis:]), [*pieces[:-1], None])
    return True


def _vectorize_runs(sch: Any, block: Any, stage: Stage, lanes: int) -> bool:
    """Vectorise the last loop if each vector of it reads what lies in a row, as one head's part of a row does; return whether it does.

    LLVM goes through all heads at once, and has no registers for that: on Arm it kept half of a row on the stack.
    """
    loops = list(sch.get_loops(block))
    extent = stage.extents[-1]
    while lanes > 1 and extent % lanes:
        lanes //= 2
    if lanes < _LEAST_REPEATED or extent == lanes or not loads_vectors(sch.get(block), lanes):
        return False
    outer, inner = sch.split(loops[-1], [None, lanes])
    sch.vectorize(inner)
    _parallel(sch, [*loops[:-1], outer], stage, max(len(loops) - 1, 1))
    return True


def _repeat(sch: Any, loops: list[Any], stage: Stage, lanes: int) -> bool:
    """Vectorise the last loop if it reads elements in order, some of them several times in a row, as a nearest resizing does.

    `tvm.base.vector_loads` makes a load and a shuffle of what such a vector reads, if the vector divides the row.
    """
    last = len(loops) - 1
    while lanes > 1 and stage.extents[last] % lanes:
        lanes //= 2
    if lanes < _LEAST_REPEATED or not all(
        read.strides[last] in (0, 1) or read.repeats[last] for read in stage.reads
    ):
        return False
    outer, inner = _split_lanes(sch, loops[last], stage.extents[last], lanes)
    sch.vectorize(inner)
    _parallel(sch, [*loops[:last], outer], stage, max(last, 1))
    return True


def _interleave(sch: Any, loops: list[Any], stage: Stage) -> bool:
    """Split the last loop if it reads runs of elements in turns, as those of channels that become pixels.

    LLVM then makes vectors of each run, and interleaves them. It cannot where the turn is a remainder.
    """
    last = len(loops) - 1
    runs = max((read.interleaved[last] for read in stage.reads), default=0)
    if not runs or not all(
        read.strides[last] is not None or read.interleaved[last] == runs for read in stage.reads
    ):
        return False
    outer, turn = sch.split(loops[last], [None, runs])
    sch.unroll(turn)
    _parallel(sch, [*loops[:last], outer], stage, max(last, 1))
    return True


def _behind_points(stage: Stage, points: Mapping[int, Sequence[int]], lanes: int) -> int:
    """Return the first loop inside all loops with partition points, if the loops from there on are long; else 0."""
    start = max((axis + 1 for axis in points), default=0)
    row = math.prod(stage.extents[start:])
    return start if start < len(stage.extents) and (row % lanes == 0 or row >= _LONG_ROW) else 0


def _contiguous_from(stage: Stage) -> int:
    """Return the outermost loop from which on every access is contiguous or invariant."""
    start = len(stage.extents) - 1
    while start > 0:
        inner = _inner_of(stage, start)
        if stage.extents[start - 1] > 1 and inner is not None and not _fuses(stage, start - 1, inner):
            break
        start -= 1
    return start


def _inner_of(stage: Stage, start: int) -> int | None:
    """Return the outermost loop from `start` on that has more than one iteration."""
    return next((axis for axis in range(start, len(stage.extents)) if stage.extents[axis] > 1), None)


def _fuses(stage: Stage, outer: int, inner: int) -> bool:
    """Whether two loops fused into one still have a stride in every access."""
    for access in (*stage.reads, *stage.writes):
        stride, step = access.strides[outer], access.strides[inner]
        if stride is None or step is None or stride != step * stage.extents[inner]:
            return False
    return True


def _loop_across(stage: Stage, last: int) -> int | None:
    """Return the loop along which a large input is contiguous, if it is not the last loop."""
    for read in stage.reads:
        if read.strides[last] in (0, 1, None) or read.elements < stage.points // 2:
            continue
        for axis, stride in enumerate(read.strides[:-1]):
            if stride == 1 and stage.extents[axis] >= 4:
                return axis
    return None


def _transpose(sch: Any, loops: list[Any], stage: Stage, across: int) -> None:
    """Tile in squares, so that a cache line is used completely before it is evicted."""
    last = len(loops) - 1
    row = _divisor(stage.extents[across])
    column = _divisor(stage.extents[last])
    across_outer, across_inner = sch.split(loops[across], [None, row])
    last_outer, last_inner = sch.split(loops[last], [None, column])
    outer = [across_outer if axis == across else loop for axis, loop in enumerate(loops[:-1])]
    sch.reorder(*outer, last_outer, across_inner, last_inner)
    _parallel(sch, outer, stage, len(outer))


def _divisor(extent: int) -> int:
    """Return the largest divisor that is at most the side of a square."""
    return max(size for size in range(1, min(extent, _TRANSPOSE_ROWS) + 1) if extent % size == 0)
