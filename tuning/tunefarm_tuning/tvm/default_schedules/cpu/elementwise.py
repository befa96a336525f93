"""Default schedules of stages that compute each element on its own: element-wise operators, copies, transposes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import seams_of
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, stage_of

PARALLEL_POINTS = 1 << 15
"""Elements from which on threads are worth waking: some microseconds of work."""
_COSTLY = 8
_TAIL_HINT = "pragma_loop_partition_hint"
_TRANSPOSE_ROWS = 16
_MOST_UNROLLED = 64
_MOST_PIECES = 64
# Iterations at most: LLVM then makes vectors of the loop outside, of elements that lie far apart.
_UNROLLED_BY_LLVM = 32
_LONG_ROW = 64


def hint_tail(sch: Any, loop: Any) -> None:
    """Have the rest of a loop that does not divide compiled apart, so that the rest of it has no conditions."""
    sch.annotate(loop, _TAIL_HINT, 1)


def is_worth_threads(stage: Stage) -> bool:
    """Whether a stage has enough work for several threads."""
    return stage.points * (_COSTLY if stage.is_costly else 1) >= PARALLEL_POINTS


def reads_indices(stage: Stage) -> bool:
    """Whether a stage reads what may be indices: TVM 0.27 mixes up 32 and 64 bits in the rest of a loop then."""
    return any(read.dtype in ("int64", "uint64") for read in stage.reads)


def schedule_plain(sch: Any, block: Any, machine: Machine) -> bool:
    """Schedule a stage without a reduction; return whether it is one."""
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
    seams = seams_of(sch, block) if stage.selects else {}
    in_order = all(read.strides[last] in (0, 1) for read in stage.reads)
    if last in seams and in_order and _cut(sch, loops, stage, seams[last], lanes):
        return True
    behind = _behind_seams(stage, seams, lanes)
    start = max(_contiguous_from(stage), behind)
    count = 1
    for place in range(start, len(loops)):
        count *= stage.extents[place]
    fused = sch.fuse(*loops[start:]) if start < last else loops[last]
    if count < 2 or not in_order or (count % lanes and (behind or reads_indices(stage))):
        _parallel(sch, [*loops[:start], fused], stage, start + (start == 0))
        return True
    outer, inner = _split_lanes(sch, fused, count, lanes)
    sch.vectorize(inner)
    alone = start == 0
    _parallel(sch, [*loops[:start], outer], stage, 1 if alone else start)
    return True


def vectorize_inner(sch: Any, loops: list[Any], lanes: int, *, unroll: bool) -> None:
    """Vectorise the innermost of a stage's own loops, as far as it divides, and unroll the others if they are short."""
    extent = int(sch.get(loops[-1]).extent)
    while lanes > 1 and extent % lanes:
        lanes //= 2
    others = loops[:-1]
    if lanes > 1:
        if extent > lanes:
            outer, inner = sch.split(loops[-1], [None, lanes])
            others = [*others, outer]
        else:
            inner = loops[-1]
        sch.vectorize(inner)
    else:
        others = loops
    count = 1
    for one in others:
        count *= int(sch.get(one).extent)
    if unroll and count <= _MOST_UNROLLED:
        for one in others:
            sch.unroll(one)


def _split_lanes(sch: Any, loop: Any, extent: int, lanes: int) -> tuple[Any, Any]:
    fitting = lanes
    while fitting > 1 and extent % fitting:
        fitting //= 2
    if fitting >= min(4, lanes) or extent < lanes:
        lanes = max(1, fitting)
    outer, inner = sch.split(loop, [None, lanes])
    if extent % lanes:
        hint_tail(sch, outer)
    return outer, inner


def _parallel(sch: Any, loops: list[Any], stage: Stage, most: int) -> None:
    """Let threads share the outermost of a stage's loops."""
    if not is_worth_threads(stage):
        return
    count = max(1, most)
    fused = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    if int(sch.get(fused).extent) > 1:
        sch.parallel(fused)


def _cut(sch: Any, loops: list[Any], stage: Stage, seams: list[int], lanes: int) -> bool:
    """Cut the last loop at its seams, unless that makes too many or too short pieces; return whether it was."""
    edges = [0, *seams, stage.extents[-1]]
    pieces = [end - start for start, end in itertools.pairwise(edges)]
    width = math.gcd(lanes, *edges)
    vectors = width >= min(4, lanes)
    if len(pieces) > _MOST_PIECES or (not vectors and max(pieces) <= _UNROLLED_BY_LLVM):
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


def _behind_seams(stage: Stage, seams: Mapping[int, Sequence[int]], lanes: int) -> int:
    """Return the first loop behind all seams, where its rows are worth walking by themselves; else 0."""
    start = max((place + 1 for place in seams), default=0)
    row = math.prod(stage.extents[start:])
    return start if start < len(stage.extents) and (row % lanes == 0 or row >= _LONG_ROW) else 0


def _contiguous_from(stage: Stage) -> int:
    """Return the first of the innermost loops that together walk every tensor one after the other, or not at all."""
    start = len(stage.extents) - 1
    while start > 0:
        inner = _inner_of(stage, start)
        if stage.extents[start - 1] > 1 and inner is not None and not _fuses(stage, start - 1, inner):
            break
        start -= 1
    return start


def _inner_of(stage: Stage, start: int) -> int | None:
    """Return the outermost loop from `start` on that has iterations at all."""
    return next((one for one in range(start, len(stage.extents)) if stage.extents[one] > 1), None)


def _fuses(stage: Stage, outer: int, inner: int) -> bool:
    for access in (*stage.reads, *stage.writes):
        stride, step = access.strides[outer], access.strides[inner]
        if stride is None or step is None or stride != step * stage.extents[inner]:
            return False
    return True


def _loop_across(stage: Stage, last: int) -> int | None:
    """Return the loop along which the largest tensor read lies side by side, if that is not the last one."""
    for read in stage.reads:
        if read.strides[last] in (0, 1, None) or read.elements < stage.points // 2:
            continue
        for place, stride in enumerate(read.strides[:-1]):
            if stride == 1 and stage.extents[place] >= 4:
                return place
    return None


def _transpose(sch: Any, loops: list[Any], stage: Stage, across: int) -> None:
    """Walk in squares: what is read side by side is then used before it leaves the cache."""
    last = len(loops) - 1
    row = _divisor(stage.extents[across])
    column = _divisor(stage.extents[last])
    across_outer, across_inner = sch.split(loops[across], [None, row])
    last_outer, last_inner = sch.split(loops[last], [None, column])
    outer = [across_outer if place == across else loop for place, loop in enumerate(loops[:-1])]
    sch.reorder(*outer, last_outer, across_inner, last_inner)
    _parallel(sch, outer, stage, len(outer))


def _divisor(extent: int) -> int:
    return max(size for size in range(1, min(extent, _TRANSPOSE_ROWS) + 1) if extent % size == 0)
