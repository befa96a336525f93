"""Default schedules of sums of products of bytes (`integer_kernels`): the instruction that CPUs have for them, and its tiles.

The sum of four products of each of the lanes becomes ``vpdpbusd``. The instruction is put in by hand: LLVM makes it of
no loops of ours, and TVM's own intrinsic hands it operands of types that LLVM 22 refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tunefarm_tuning.tvm.base.tir import rebuilt
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    PARALLEL_POINTS,
    schedule_plain,
    vectorize_inner,
)
from tunefarm_tuning.tvm.default_schedules.cpu.reduce import schedule_tiled
from tunefarm_tuning.tvm.default_schedules.stage import Machine, stage_of
from tunefarm_tuning.tvm.kernels.int8_kernels import PRODUCTS, SUM

_REGISTERS = {16: 32, 8: 16}  # by lanes: what the instruction can name, of AVX-512 or of AVX
_FACTOR_REGISTERS = 4  # hold what is multiplied; the others sums
_LATENCY_CYCLES = 4.0
_TILE_CYCLES = 16.0  # to clear and to store a tile
_PARALLEL_SUMS = 4 * PARALLEL_POINTS
_MOST_PARALLEL = 256


def schedule_dots(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Schedule a kernel around a sum of products of bytes; return whether it is one."""
    sums = [block for block in blocks if sch.get(block).name_hint == SUM]
    if len(sums) != 1 or not machine.dot_lanes:
        return False
    block = sums[0]
    consumers = list(sch.get_consumers(block))
    epilogue = (
        consumers[0] if len(consumers) == 1 and _takes_vectors(sch, block, consumers[0], machine) else None
    )
    for one in blocks:
        if one not in (block, epilogue):
            _ = schedule_tiled(sch, one, machine) or schedule_plain(sch, one, machine)
    _schedule(sch, block, epilogue, machine)
    return True


def _takes_vectors(sch: Any, block: Any, consumer: Any, machine: Machine) -> bool:
    """Whether a stage takes the sums one by one, and leaves none of a vector out: channels are filled up to whole ones."""
    stage = stage_of(sch, consumer)
    written = sch.get(block).writes[0]
    return (
        stage is not None
        and stage.is_injective
        and stage.extents == tuple(int(size) for size in written.source.shape)
        and stage.extents[-1] % machine.dot_lanes == 0
    )


def _schedule(sch: Any, block: Any, epilogue: Any | None, machine: Machine) -> None:
    extents = _extents(sch, sch.get_loops(block))
    spatial = len(list(sch.get(block).writes[0].region)) - 1  # but for the channels
    lanes = machine.dot_lanes
    columns, rows, vectors = _tile(
        extents[spatial - 1],
        extents[spatial - 2] if spatial > 1 else 1,
        extents[spatial] // lanes,
        _product(extents[spatial + 1 :]) // PRODUCTS,
        _REGISTERS[lanes] - _FACTOR_REGISTERS,
    )
    if epilogue is None:
        epilogue = sch.cache_write(block, 0, "local")
    else:
        sch.set_scope(block, 0, "local")
    loops = list(sch.get_loops(block))
    _, lane = sch.split(loops[spatial], [None, lanes])
    sums = loops[spatial + 1 : -1]
    sch.reorder(*sums, lane, loops[-1])
    dot = sch.blockize(lane)
    loops = list(sch.get_loops(dot))
    outer = loops[: max(0, spatial - 2)]
    across, column = sch.split(loops[spatial - 1], [None, columns])
    channel, vector = sch.split(loops[spatial], [None, vectors])
    inner = [column, vector]
    tiles = [across]
    if spatial > 1:
        down, row = sch.split(loops[spatial - 2], [None, rows])
        inner, tiles = [row, *inner], [down, across]
    sums = loops[spatial + 1 :]
    sch.reorder(*outer, channel, *tiles, *sums, *inner)
    sch.reverse_compute_at(epilogue, tiles[-1])
    whole = [*outer, channel]
    # Fused with others, a loop that leaves a rest is not split into its whole part and the rest: the tile would not unroll.
    if spatial > 1 and (extents[spatial - 2] % rows == 0 or _product(_extents(sch, whole)) == 1):
        whole.append(tiles[0])
    _parallel(sch, whole, _product(extents))
    own = list(sch.get_loops(epilogue))[-(spatial + 1) :]
    vectorize_inner(sch, own, lanes, unroll=True)
    init = sch.decompose_reduction(dot, sums[0])
    for loop in list(sch.get_loops(init))[-len(inner) :]:
        sch.unroll(loop)
    sch.vectorize(list(sch.get_loops(sch.get_child_blocks(init)[0]))[-1])
    for loop in inner:
        sch.unroll(loop)
    # What `_instruction` looks for.
    sch.annotate(dot, SUM, lanes)


def _parallel(sch: Any, loops: list[Any], points: int) -> None:
    count, extent = 0, 1
    for loop in loops:
        if count and extent >= _MOST_PARALLEL:
            break
        extent *= int(sch.get(loop).extent)
        count += 1
    fused = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    if extent > 1 and points >= _PARALLEL_SUMS:
        sch.parallel(fused)


def _tile(columns: int, rows: int, groups: int, steps: int, most: int) -> tuple[int, int, int]:
    """Return how many columns, rows and vectors of channels a tile has: those that should take the fewest cycles.

    Args:
        columns: Of the result.
        rows: Of the result.
        groups: Vectors of channels of the result.
        steps: Instructions that a vector of sums takes.
        most: Vectors of sums in a tile.
    """

    def cycles(tile: tuple[int, int, int]) -> float:
        column, row, vectors = tile
        results = column * row * vectors
        a_step = max(results / 2, (column * row + vectors) / 2, _LATENCY_CYCLES)
        count = ceil(columns / column) * ceil(rows / row) * (groups // vectors)
        return count * (a_step * steps + _TILE_CYCLES)

    return min(_tiles(columns, rows, groups, most), key=cycles)


def _tiles(columns: int, rows: int, groups: int, most: int) -> Iterator[tuple[int, int, int]]:
    for vectors in range(1, min(groups, most) + 1):
        if groups % vectors:
            continue
        for column in range(1, min(columns, most // vectors) + 1):
            for row in range(1, min(rows, most // (vectors * column)) + 1):
                yield column, row, vectors


def _extents(sch: Any, loops: list[Any]) -> list[int]:
    return [int(sch.get(loop).extent) for loop in loops]


def _product(extents: list[int]) -> int:
    count = 1
    for extent in extents:
        count *= extent
    return count


def with_instructions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel with its sums of products of bytes as instructions."""
    return func.with_body(rebuilt(func.body, _instruction))


def _instruction(stmt: Any) -> Any:
    if not isinstance(stmt, SBlockRealize) or SUM not in stmt.block.annotations:
        return stmt
    block = stmt.block
    lanes = int(block.annotations[SUM])
    factors = {str(read.source.dtype): read for read in block.reads}
    result, (given, weights) = block.writes[0], (factors["uint8"], factors["int8"])
    bits = 32 * lanes
    bytes_ = f"int8x{PRODUCTS * lanes}"
    four = tirx.reinterpret("int32", given.source[_side_by_side(given, PRODUCTS)])
    place = _side_by_side(result, lanes)
    added = tirx.call_llvm_pure_intrin(
        f"int32x{lanes}",
        f"llvm.x86.avx512.vpdpbusd.{bits}",
        result.source[place],
        tirx.reinterpret(bytes_, tirx.Broadcast(four, lanes)),
        weights.source[_side_by_side(weights, PRODUCTS * lanes)],
    )
    made = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tirx.BufferStore(result.source, added, list(place)),
    )
    return SBlockRealize(stmt.iter_values, stmt.predicate, made)


def _side_by_side(region: Any, count: int) -> tuple[Any, ...]:
    *outer, last = [place.min for place in region.region]
    return (*outer, tirx.Ramp(last, tirx.const(1, "int64"), count))
