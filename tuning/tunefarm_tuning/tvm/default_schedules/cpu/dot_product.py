"""Schedule dot products (`kernels.dot_products`) around the CPU's instruction for them, and tile them.

In each SIMD lane the sum of four products of bytes becomes ``vpdpbusd`` (VNNI) or ``sdot`` (Arm), that of two of bfloat16 ``vdpbf16ps``
(AVX512_BF16) or ``bfdot`` (Arm);
the sums of two rows and two results become ``smmla`` (of eight products of bytes each) or ``bfmmla`` (of four of bfloat16; both Arm). The
instructions are inserted by hand: LLVM does not find them in any loops that TVM generates, and TVM's own intrinsic hands VNNI operand
types that LLVM 22 refuses.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tunefarm_tuning.target.cores import Core
from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.bfloat16_instructions import dot_bfloat16, matrix_bfloat16
from tunefarm_tuning.tvm.base.tir import rebuilt, walk
from tunefarm_tuning.tvm.default_schedules.access import nominal_size
from tunefarm_tuning.tvm.default_schedules.cpu.dot_tiles import choose_tile
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    PARALLEL_POINTS,
    schedule_elementwise,
    vectorize_inner,
)
from tunefarm_tuning.tvm.default_schedules.cpu.tiled_reductions import schedule_tiled_reduction
from tunefarm_tuning.tvm.default_schedules.cpu.weight_prefetch import prefetch_weights
from tunefarm_tuning.tvm.default_schedules.stage import Machine, itemsize, stage_of
from tunefarm_tuning.tvm.kernels.dot_products import (
    BFLOAT16,
    BFLOAT16_MATRICES,
    BYTE_MATRICES,
    BYTE_TAPS,
    KINDS,
    DotProduct,
    add_byte_products,
    add_bytes,
    add_matrix_of_bytes,
    kind_of,
)

_MOST_SUMS = {16: 28, 4: 20}
"""Registers for sums of bfloat16's products, by the instruction's lanes: of AVX-512, of Arm. The others have factors."""
_ARM_LOADS = (2.0, 1.0)
"""Loads in a cycle, and those of a single factor that take as long as one of a vector: tiles for Arm were chosen with these."""
_REGISTERS = {16: 32, 8: 16, 4: 32}
"""Vector registers by the instruction's lanes: of AVX-512, of AVX, of Arm."""
_MOST_TAP_SUMS = {4: 8, 8: 14, 16: 14}
"""Registers for sums of a depthwise convolution, by the instruction's lanes."""
_TAP_LANES, _TAP_BYTES = 8, 16
"""An instruction of fewer lanes shares loads and shuffles of a vector of `_TAP_BYTES` with its neighbours."""
_MOST_UNROLLED_TAPS = 256
_PARALLEL_SUMS = 4 * PARALLEL_POINTS
_MAX_PARALLEL = 256
_ANNOTATION = "tunefarm.dot_product"


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
    own = _instruction_of(kind, machine)
    most_sums = _MOST_SUMS[lanes] if own is None else own.most_sums
    _schedule(sch, block, epilogue, kind, lanes, most_sums, machine.core)
    return True


def lanes_of(kind: DotProduct, machine: Machine) -> int:
    """Return the sums of the CPU's instruction of a kind; 0 if it has none."""
    if kind is BFLOAT16:
        return machine.bfloat16_lanes
    if kind is BFLOAT16_MATRICES:
        return kind.rows * machine.bfloat16_matrix_lanes
    own = _instruction_of(kind, machine)
    return 0 if own is None else own.lanes * own.rows


def _instruction_of(kind: DotProduct, machine: Machine) -> ByteProducts | None:
    """Return the CPU's instruction for a kind of products of bytes; None if it has none."""
    best = machine.byte_products
    if kind.sum_dtype != "int32" or best is None:
        return None
    own = best.by_row if kind.rows == 1 else best
    return own if (own.rows, own.products) == (kind.rows, kind.products) else None


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
    pitches = _pitches(sch, block, spatial)
    groups = extents[spatial] if kind.rows > 1 else extents[spatial] // lanes
    reduced = extents[spatial + (1 if kind.rows == 1 else 2) :]
    columns, rows, vectors = choose_tile(
        extents[spatial - 1],
        extents[spatial - 2] if spatial > 1 else 1,
        groups,
        prod(reduced) // kind.products,
        (most_sums, _REGISTERS[lanes]),
        pitches,
        core.first_cache_bytes
        // (lanes // kind.rows * kind.products * (2 if kind.sum_dtype == "float32" else 1)),
        _ARM_LOADS if core.registers else (core.loads_per_cycle, core.loads_of_vector),
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
    own = list(sch.get_loops(epilogue))[len(outer) + 1 + len(tiles) :]
    shared = [*outer, channel]
    # A fused loop with a tail is not split into main part and tail, so the tile would not be unrolled.
    if spatial > 1 and (extents[spatial - 2] % rows == 0 or prod(_extents(sch, shared)) == 1):
        shared.append(tiles[0])
    _parallel(sch, shared, prod(extents))
    vectorize_inner(sch, own, lanes, unroll=True)
    init = sch.decompose_reduction(dot, sums[0])
    for loop in list(sch.get_loops(init))[-len(inner) :]:
        sch.unroll(loop)
    sch.vectorize(list(sch.get_loops(sch.get_child_blocks(init)[0]))[-1])
    for loop in inner:
        sch.unroll(loop)
    # `insert_dot_products` looks for this annotation
    sch.annotate(dot, _ANNOTATION, lanes)
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
    if own_lanes < _TAP_LANES and nominal_size(sch.get(sch.get_loops(block)[3]).extent) % _TAP_BYTES == 0:
        lanes = _TAP_BYTES
    dot = sch.blockize(instruction_loops(sch, block, lanes))
    image, down, across, channel, *taps = sch.get_loops(dot)
    width = nominal_size(sch.get(across).extent)
    vectors = -(-lanes // own_lanes)
    columns = _tap_columns(width, prod(_extents(sch, taps)), _MOST_TAP_SUMS[own_lanes] // vectors)
    tile, column = sch.split(across, [None, columns])
    sch.reorder(image, down, tile, channel, column, *taps)
    sch.reverse_compute_at(epilogue, channel)
    own = list(sch.get_loops(epilogue))[4:]
    _parallel(sch, [image, down, *([] if width % columns else [tile])], points)
    vectorize_inner(sch, own, lanes, unroll=True)
    init = sch.decompose_reduction(dot, column)
    sch.unroll(list(sch.get_loops(init))[-1])
    sch.vectorize(list(sch.get_loops(sch.get_child_blocks(init)[0]))[-1])
    for loop in (column, *taps):
        sch.unroll(loop)
    sch.annotate(dot, _ANNOTATION, lanes)


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


def insert_dot_products(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel with its annotated dot products replaced by the CPU's instruction."""
    if not any(isinstance(node, SBlock) and _ANNOTATION in node.annotations for node in walk(func.body)):
        return func

    def with_instruction(stmt: Any) -> Any:
        if not isinstance(stmt, SBlockRealize) or _ANNOTATION not in stmt.block.annotations:
            return stmt
        block = stmt.block
        added = instruction(block, int(block.annotations[_ANNOTATION]), machine)
        replacement = SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, added)
        return SBlockRealize(stmt.iter_values, stmt.predicate, replacement)

    return func.with_body(rebuilt(func.body, with_instruction))


def instruction(block: Any, lanes: int, machine: Machine) -> Any:
    """Return the statement of a block's instruction: the block reads the factors and writes the sums of all lanes."""
    result = block.writes[0]
    factors = [read for read in block.reads if not read.source.same_as(result.source)]
    kind = kind_of(str(block.name_hint))
    if kind is BYTE_TAPS:
        weights, image = sorted(factors, key=lambda read: int(read.region[1].extent))
        return _tap_instruction(result, image, weights, lanes, machine)
    activations, weights = sorted(factors, key=lambda read: int(read.region[-1].extent))
    products = int(activations.region[-1].extent)
    indices = vector_indices(result, lanes)
    sums = result.source[indices]
    shared = activations.source[vector_indices(activations, products)]
    if kind in (BYTE_MATRICES, BFLOAT16_MATRICES):
        *outer, row, _ = activations.region
        behind = [*[dim.min for dim in outer], row.min + row.extent - 1]
        second = activations.source[(*behind, vector_indices(activations, products)[-1])]
        factors = weights.source[vector_indices(weights, int(weights.region[-1].extent))]
        if kind is BFLOAT16_MATRICES:
            added = matrix_bfloat16(sums, [shared, second], factors)
        else:
            assert machine.byte_products is not None, "else the block would have no annotation"
            added = add_matrix_of_bytes(sums, [shared, second], factors, machine.byte_products)
        return tirx.BufferStore(result.source, added, list(indices))
    own = weights.source[vector_indices(weights, products * lanes)]
    if kind is BFLOAT16:
        added = dot_bfloat16(sums, shared, own)
    else:
        assert machine.byte_products is not None, "else the block would have no annotation"
        added = add_byte_products(sums, shared, own, machine.byte_products.by_row)
    return tirx.BufferStore(result.source, added, list(indices))


def _tap_instruction(result: Any, image: Any, weights: Any, lanes: int, machine: Machine) -> Any:
    """Return the statement of four rows' taps: their bytes are shuffled so that those of a channel lie side by side."""
    assert machine.byte_products is not None, "else the block would have no annotation"
    batch, row, column, channel = [dim.min for dim in image.region]
    rows = BYTE_TAPS.products
    vectors = [
        image.source[batch, row + number, column, tirx.Ramp(channel, tirx.const(1, "int64"), lanes)]
        for number in range(rows)
    ]
    own_lanes = machine.byte_products.by_row.lanes
    if own_lanes < lanes:
        return _tap_instructions(result, vectors, weights, lanes // own_lanes, machine.byte_products.by_row)
    order = [number * lanes + lane for lane in range(lanes) for number in range(rows)]
    own = weights.source[vector_indices(weights, rows * lanes)]
    indices = vector_indices(result, lanes)
    four = tirx.Shuffle(vectors, order)
    added = add_bytes(result.source[indices], four, own, machine.byte_products.by_row)
    return tirx.BufferStore(result.source, added, list(indices))


def _tap_instructions(result: Any, rows: list[Any], weights: Any, count: int, own: ByteProducts) -> Any:
    """Return the statements of several instructions, for the channels of four vectors of bytes: two steps of shuffles join the rows."""
    *outer, channel = [dim.min for dim in result.region]
    group, *behind, first = [dim.min for dim in weights.region]
    added = []
    for number in range(count):
        upper = number >= count // 2
        even, odd = (_zipped(rows[row], rows[row + 2], upper=upper) for row in range(2))
        four = _zipped(even, odd, upper=number % 2 == 1)
        factors = weights.source[
            (group + number, *behind, tirx.Ramp(first, tirx.const(1, "int64"), 4 * own.lanes))
        ]
        indices = [*outer, tirx.Ramp(channel + number * own.lanes, tirx.const(1, "int64"), own.lanes)]
        sums = add_bytes(result.source[tuple(indices)], four, factors, own)
        added.append(tirx.BufferStore(result.source, sums, indices))
    return tirx.SeqStmt(added)


def _zipped(first: Any, second: Any, *, upper: bool) -> Any:
    """Return the elements of two vectors of bytes in turns, of their lower or upper halves."""
    start = _TAP_BYTES // 2 if upper else 0
    order = [lane + side for lane in range(start, start + _TAP_BYTES // 2) for side in (0, _TAP_BYTES)]
    return tirx.Shuffle([first, second], order)


def vector_indices(region: Any, count: int) -> tuple[Any, ...]:
    """Return the indices of the vector of `count` elements with which a region starts."""
    *outer, last = [dim.min for dim in region.region]
    return (*outer, tirx.Ramp(last, tirx.const(1, "int64"), count))


def instruction_loops(sch: Any, block: Any, lanes: int) -> Any:
    """Split the loops of a dot product, and return the loop over the lanes of an instruction; its products are inside."""
    loops = list(sch.get_loops(block))
    spatial = len(list(sch.get(block).writes[0].region))
    lane = loops[spatial - 1]
    if KINDS[str(sch.get(block).name_hint)].rows == 1:
        _, lane = sch.split(lane, [None, lanes])
    sch.reorder(*loops[spatial:-1], lane, loops[-1])
    return lane
