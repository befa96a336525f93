"""Schedule dot products (`kernels.dot_products`) around the CPU's instruction for them, and tile them.

In each SIMD lane the sum of four products of bytes becomes ``vpdpbusd`` (VNNI) or ``sdot`` (Arm), that of two of bfloat16 ``vdpbf16ps``
(AVX512_BF16) or ``bfdot`` (Arm); the sums of two rows and two results become ``smmla`` (of eight products of bytes each) or ``bfmmla`` (of four of bfloat16; both Arm).
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tunefarm_tuning.target.cores import Core
from tunefarm_tuning.tvm.default_schedules.access import nominal_size
from tunefarm_tuning.tvm.default_schedules.cpu.dot_instructions import (
    TAP_BYTES,
    instruction_loops,
    instruction_of,
    lanes_of,
    mark_instruction,
)
from tunefarm_tuning.tvm.default_schedules.cpu.dot_tiles import choose_tile
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    PARALLEL_POINTS,
    schedule_elementwise,
    vectorize_inner,
)
from tunefarm_tuning.tvm.default_schedules.cpu.tiled_reductions import schedule_tiled_reduction
from tunefarm_tuning.tvm.default_schedules.cpu.weight_prefetch import prefetch_weights
from tunefarm_tuning.tvm.default_schedules.stage import Machine, itemsize, stage_of
from tunefarm_tuning.tvm.kernels.dot_products import BYTE_TAPS, KINDS, DotProduct

_MOST_SUMS = {16: 28, 4: 20}
"""Registers for sums of bfloat16's products, by the instruction's lanes: of AVX-512, of Arm. The others have factors."""
_ARM_LOADS = (2.0, 1.0)
"""Loads in a cycle, and those of a single factor that take as long as one of a vector: tiles for Arm were chosen with these."""
_REGISTERS = {16: 32, 8: 16, 4: 32}
"""Vector registers by the instruction's lanes: of AVX-512, of AVX, of Arm."""
_MOST_TAP_SUMS = {4: 8, 8: 14, 16: 14}
"""Registers for sums of a depthwise convolution, by the instruction's lanes."""
_TAP_LANES = 8
"""An instruction of fewer lanes shares loads and shuffles of a vector of `TAP_BYTES` with its neighbours."""
_MOST_UNROLLED_TAPS = 256
_PARALLEL_SUMS = 4 * PARALLEL_POINTS
_MAX_PARALLEL = 256


def schedule_dot_product(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Schedule a kernel around its dot product; return whether it has one for which the CPU has an instruction."""
    sums = [block for block in blocks if sch.get(block).name_hint in KINDS]
    if len(sums) != 1:
        return False
    block = sums[0]
    kind = KINDS[str(sch.get(block).name_hint)]
    lanes = lanes_of(kind, machine)
    if not lanes:
        return False
    consumers = list(sch.get_consumers(block))
    epilogue = (
        consumers[0]
        if len(consumers) == 1 and _takes_vectors(sch, block, consumers[0], kind, lanes)
        else None
    )
    for other in blocks:
        if other not in (block, epilogue):
            _ = schedule_tiled_reduction(sch, other, machine) or schedule_elementwise(sch, other, machine)
    if kind is BYTE_TAPS:
        _schedule_taps(sch, block, epilogue, lanes)
        return True
    of_bytes = instruction_of(kind, machine)
    most_sums = _MOST_SUMS[lanes] if of_bytes is None else of_bytes.most_sums
    _schedule(sch, block, epilogue, kind, lanes, most_sums, machine.core)
    return True


def _takes_vectors(sch: Any, block: Any, consumer: Any, kind: DotProduct, lanes: int) -> bool:
    """Return whether a stage reads the sums element by element, in whole vectors of the padded channels."""
    stage = stage_of(sch, consumer)
    shape = [nominal_size(size) for size in sch.get(block).writes[0].source.shape]
    if kind.rows > 1:
        *outer, rows, groups, sums = shape
        shape = [*outer, rows * kind.rows, groups * sums // kind.rows]
        lanes //= kind.rows
    return (
        stage is not None
        and stage.is_injective
        and stage.extents == tuple(shape)
        and stage.extents[-1] % lanes == 0
    )


def _schedule(
    sch: Any,
    block: Any,
    epilogue: Any | None,
    kind: DotProduct,
    lanes: int,
    most_sums: int,
    core: Core,
) -> None:
    extents = _extents(sch, sch.get_loops(block))
    # Without the channels; the sums of several rows have a dimension more.
    spatial = len(list(sch.get(block).writes[0].region)) - (1 if kind.rows == 1 else 2)
    groups = extents[spatial] if kind.rows > 1 else extents[spatial] // lanes
    reduced = extents[spatial + (1 if kind.rows == 1 else 2) :]
    weight_bytes = 2 if kind.sum_dtype == "float32" else 1
    loads_per_cycle, loads_of_vector = (
        _ARM_LOADS if core.registers else (core.loads_per_cycle, core.loads_of_vector)
    )
    columns, rows, vectors = choose_tile(
        columns=extents[spatial - 1],
        rows=extents[spatial - 2] if spatial > 1 else 1,
        groups=groups,
        steps=prod(reduced) // kind.products,
        most_sums=most_sums,
        registers=_REGISTERS[lanes],
        pitches=_pitches(sch, block, spatial),
        near=core.first_cache_bytes // (lanes // kind.rows * kind.products * weight_bytes),
        loads_per_cycle=loads_per_cycle,
        loads_of_vector=loads_of_vector,
    )
    if epilogue is None:
        epilogue = sch.cache_write(block, 0, "local")
    else:
        sch.set_scope(block, 0, "local")
    dot = sch.blockize(instruction_loops(sch, block, lanes))
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
    behind = list(sch.get_loops(epilogue))[len(outer) + 1 + len(tiles) :]
    shared = [*outer, channel]
    # A fused loop with a tail is not split into main part and tail, so the tile would not be unrolled.
    if spatial > 1 and (extents[spatial - 2] % rows == 0 or prod(_extents(sch, shared)) == 1):
        shared.append(tiles[0])
    _parallel(sch, shared, prod(extents))
    vectorize_inner(sch, behind, lanes, unroll=True)
    init = sch.decompose_reduction(dot, sums[0])
    for loop in list(sch.get_loops(init))[-len(inner) :]:
        sch.unroll(loop)
    sch.vectorize(list(sch.get_loops(sch.get_child_blocks(init)[0]))[-1])
    for loop in inner:
        sch.unroll(loop)
    mark_instruction(sch, dot, lanes)
    if kind.rows == 1:
        tile = [(spatial - 2, rows), (spatial - 1, columns)][-spatial:]
        tiles = [(axis, size, ceil(extents[axis] / size)) for axis, size in tile]
        prefetch_weights(sch, dot, spatial, vectors * lanes * kind.products, tiles)


def _schedule_taps(sch: Any, block: Any, epilogue: Any | None, own_lanes: int) -> None:
    """Schedule the sums of a depthwise convolution: all taps of a tile are unrolled, so that its columns share what they read.

    Instructions of few sums (`own_lanes`) share the load of a whole vector of bytes, and the shuffles of four rows.
    """
    lanes = own_lanes
    if epilogue is None:
        epilogue = sch.cache_write(block, 0, "local")
    else:
        sch.set_scope(block, 0, "local")
    points = prod(_extents(sch, sch.get_loops(block)))
    if own_lanes < _TAP_LANES and nominal_size(sch.get(sch.get_loops(block)[3]).extent) % TAP_BYTES == 0:
        lanes = TAP_BYTES
    dot = sch.blockize(instruction_loops(sch, block, lanes))
    image, down, across, channel, *taps = sch.get_loops(dot)
    width = nominal_size(sch.get(across).extent)
    vectors = -(-lanes // own_lanes)
    columns = _tap_columns(width, prod(_extents(sch, taps)), _MOST_TAP_SUMS[own_lanes] // vectors)
    tile, column = sch.split(across, [None, columns])
    sch.reorder(image, down, tile, channel, column, *taps)
    sch.reverse_compute_at(epilogue, channel)
    behind = list(sch.get_loops(epilogue))[4:]
    _parallel(sch, [image, down, *([] if width % columns else [tile])], points)
    vectorize_inner(sch, behind, lanes, unroll=True)
    init = sch.decompose_reduction(dot, column)
    sch.unroll(list(sch.get_loops(init))[-1])
    sch.vectorize(list(sch.get_loops(sch.get_child_blocks(init)[0]))[-1])
    for loop in (column, *taps):
        sch.unroll(loop)
    mark_instruction(sch, dot, lanes)


def _tap_columns(width: int, instructions: int, sums: int) -> int:
    """Return the columns of a tile of a depthwise convolution: those that leave the smallest tail, and of these the most.

    Each column has so many instructions for a vector of channels; all of a tile are unrolled. There are registers for `sums` columns.
    """
    most = max(1, min(width, sums, _MOST_UNROLLED_TAPS // instructions))
    return min(
        range(1, most + 1),
        key=lambda columns: (-(-width // columns) * columns + width / (4 * columns), -columns),
    )


def _parallel(sch: Any, loops: list[Any], points: int) -> None:
    count, extent = 0, 1
    for loop in loops:
        if count and extent >= _MAX_PARALLEL:
            break
        extent *= nominal_size(sch.get(loop).extent)
        count += 1
    fused = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    if extent > 1 and points >= _PARALLEL_SUMS:
        sch.parallel(fused)


def _pitches(sch: Any, block: Any, spatial: int) -> tuple[int, int]:
    """Return the bytes from one column of the activations to the next, and from one row to the next; 0 where that varies."""
    stage = stage_of(sch, block)
    for read in () if stage is None else stage.reads:
        column = read.strides[spatial - 1]
        row = read.strides[spatial - 2] if spatial > 1 else 0
        if column != 0 or row != 0:  # weights are the same for all of them
            return (column or 0) * itemsize(read.dtype), (row or 0) * itemsize(read.dtype)
    return 0, 0


def _extents(sch: Any, loops: list[Any]) -> list[int]:
    return [nominal_size(sch.get(loop).extent) for loop in loops]
