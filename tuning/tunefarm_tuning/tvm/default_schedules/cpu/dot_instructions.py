"""The instructions of dot products (`kernels.dot_products`): which a CPU has, the loops that each takes the place of, and the calls.

Schedules mark the blocks (`mark_instruction`), and `insert_dot_products` puts the calls into them. The instructions are inserted by hand:
LLVM does not find them in any loops that TVM generates, and TVM's own intrinsic hands VNNI operand types that LLVM 22 refuses.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.bfloat16_instructions import dot_bfloat16, matrix_bfloat16
from tunefarm_tuning.tvm.base.tir import rebuilt, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine
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

TAP_BYTES = 16
"""Bytes of a vector that several instructions of few taps share."""
_ANNOTATION = "tunefarm.dot_product"


def lanes_of(kind: DotProduct, machine: Machine) -> int:
    """Return the sums of the CPU's instruction of a kind; 0 if it has none."""
    if kind is BFLOAT16:
        return machine.bfloat16_lanes
    if kind is BFLOAT16_MATRICES:
        return kind.rows * machine.bfloat16_matrix_lanes
    chosen = instruction_of(kind, machine)
    return 0 if chosen is None else chosen.lanes * chosen.rows


def instruction_of(kind: DotProduct, machine: Machine) -> ByteProducts | None:
    """Return the CPU's instruction for a kind of products of bytes; None if it has none."""
    best = machine.byte_products
    if kind.sum_dtype != "int32" or best is None:
        return None
    chosen = best.by_row if kind.rows == 1 else best
    return chosen if (chosen.rows, chosen.products) == (kind.rows, kind.products) else None


def instruction_loops(sch: Any, block: Any, lanes: int) -> Any:
    """Split the loops of a dot product, and return the loop over the lanes of an instruction; its products are inside."""
    loops = list(sch.get_loops(block))
    spatial = len(list(sch.get(block).writes[0].region))
    lane = loops[spatial - 1]
    if KINDS[str(sch.get(block).name_hint)].rows == 1:
        _, lane = sch.split(lane, [None, lanes])
    sch.reorder(*loops[spatial:-1], lane, loops[-1])
    return lane


def mark_instruction(sch: Any, block: Any, lanes: int) -> None:
    """Mark a block whose loops are those of an instruction."""
    sch.annotate(block, _ANNOTATION, lanes)


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
    factors = weights.source[vector_indices(weights, products * lanes)]
    if kind is BFLOAT16:
        added = dot_bfloat16(sums, shared, factors)
    else:
        assert machine.byte_products is not None, "else the block would have no annotation"
        added = add_byte_products(sums, shared, factors, machine.byte_products.by_row)
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
    factors = weights.source[vector_indices(weights, rows * lanes)]
    indices = vector_indices(result, lanes)
    four = tirx.Shuffle(vectors, order)
    added = add_bytes(result.source[indices], four, factors, machine.byte_products.by_row)
    return tirx.BufferStore(result.source, added, list(indices))


def _tap_instructions(
    result: Any, rows: list[Any], weights: Any, count: int, instruction: ByteProducts
) -> Any:
    """Return the statements of several instructions, for the channels of four vectors of bytes: two steps of shuffles join the rows."""
    *outer, channel = [dim.min for dim in result.region]
    group, *behind, first = [dim.min for dim in weights.region]
    added = []
    for number in range(count):
        upper = number >= count // 2
        even, odd = (_zipped(rows[row], rows[row + 2], upper=upper) for row in range(2))
        four = _zipped(even, odd, upper=number % 2 == 1)
        factors = weights.source[
            (group + number, *behind, tirx.Ramp(first, tirx.const(1, "int64"), 4 * instruction.lanes))
        ]
        indices = [
            *outer,
            tirx.Ramp(channel + number * instruction.lanes, tirx.const(1, "int64"), instruction.lanes),
        ]
        sums = add_bytes(result.source[tuple(indices)], four, factors, instruction)
        added.append(tirx.BufferStore(result.source, sums, indices))
    return tirx.SeqStmt(added)


def _zipped(first: Any, second: Any, *, upper: bool) -> Any:
    """Return the elements of two vectors of bytes in turns, of their lower or upper halves."""
    start = TAP_BYTES // 2 if upper else 0
    order = [lane + side for lane in range(start, start + TAP_BYTES // 2) for side in (0, TAP_BYTES)]
    return tirx.Shuffle([first, second], order)


def vector_indices(region: Any, count: int) -> tuple[Any, ...]:
    """Return the indices of the vector of `count` elements with which a region starts."""
    *outer, last = [dim.min for dim in region.region]
    return (*outer, tirx.Ramp(last, tirx.const(1, "int64"), count))
