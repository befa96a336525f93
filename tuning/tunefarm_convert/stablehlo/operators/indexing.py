"""Indexing by computed or constant positions: gather, scatter, dynamic slices.

StableHLO's general forms become positions in the flattened value: one list of numbers, one Gather or ScatterElements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.movement import (
    cast,
    concatenated,
    padded,
    reshaped,
    sliced,
    spread,
    taken,
    transposed,
)
from tunefarm_convert.stablehlo.operators.regions import operator_of
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.values import Emitter, Value, constant, one_number, splat

_REDUCTIONS = {"assign": "none", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def _clipped(emit: Emitter, value: Value, largest: int) -> Value:
    """Clamp positions to between zero and the largest, as int64."""
    zero, end = splat(0, "int64", value.shape), splat(largest, "int64", value.shape)
    return emit.apply("Min", emit.apply("Max", cast(emit, value, "int64"), zero), end)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _component(emit: Emitter, indices: Value, dim: int, position: int) -> Value:
    """Return one component of index vectors that lie along a dimension, which is removed."""
    if dim == indices.rank:
        return indices
    starts = [position if i == dim else 0 for i in range(indices.rank)]
    ends = [position + 1 if i == dim else size for i, size in enumerate(indices.shape)]
    part = sliced(emit, indices, starts, ends, [1] * indices.rank)
    return reshaped(emit, part, [size for i, size in enumerate(indices.shape) if i != dim])


def _gather(op: OperatorContext) -> list[Value]:
    emit, (value, indices) = op.emit, op.operands
    numbers = op.attribute("dimension_numbers")
    sizes = op.ints("slice_sizes")
    gone = [*numbers["collapsed_slice_dims"], *numbers["operand_batching_dims"]]
    mapped = numbers["start_index_map"]
    dim = numbers["index_vector_dim"]
    offsets = numbers["offset_dims"]
    shape = op.result().shape
    batches = [i for i in range(len(shape)) if i not in offsets]
    if len(mapped) == 1 and not numbers["operand_batching_dims"]:
        (along,) = mapped
        if sizes[along] == 1 and all(n == value.shape[i] for i, n in enumerate(sizes) if i != along):
            return [_rows(op, value, _component(emit, indices, dim, 0), along, along in gone)]
    kept = [i for i in range(value.rank) if i not in gone]
    strides = _strides(value.shape)
    positions = splat(0, "int64", shape)
    for position, along in enumerate(mapped):
        start = _clipped(emit, _component(emit, indices, dim, position), value.shape[along] - sizes[along])
        start = spread(emit, start, shape, batches)
        positions = emit.apply(
            "Add", positions, emit.apply("Mul", start, splat(strides[along], "int64", shape))
        )
    remaining = [i for i in range(indices.rank) if i != dim]
    for along, batch in zip(
        numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True
    ):
        at = batches[remaining.index(batch)]
        positions = emit.apply("Add", positions, _steps(shape, at, strides[along]))
    for along, at in zip(kept, offsets, strict=True):
        positions = emit.apply("Add", positions, _steps(shape, at, strides[along]))
    return [taken(emit, reshaped(emit, value, [math.prod(value.shape)]), positions, 0)]


def _steps(shape: Sequence[int], dim: int, stride: int) -> Value:
    """Return 0, stride, 2 stride ... along a dimension, broadcast over the others."""
    sizes = [shape[dim] if i == dim else 1 for i in range(len(shape))]
    return constant(np.broadcast_to((np.arange(shape[dim]) * stride).reshape(sizes), tuple(shape)))


def _rows(op: OperatorContext, value: Value, indices: Value, along: int, gone: bool) -> Value:
    """Return whole slices of a value at positions along a dimension, as in an embedding."""
    emit, shape = op.emit, op.result().shape
    offsets = op.attribute("dimension_numbers")["offset_dims"]
    batches = [i for i in range(len(shape)) if i not in offsets]
    rows = taken(emit, value, _clipped(emit, indices, value.shape[along] - 1), along)
    # Its dimensions: the value's before `along`, the indices', the value's behind.
    if not gone:
        rows = reshaped(emit, rows, [*rows.shape[: along + indices.rank], 1, *value.shape[along + 1 :]])
    order = [0] * len(shape)
    middle = list(range(along, along + indices.rank))
    others = [i for i in range(rows.rank) if i not in middle]
    for at, source in (*zip(batches, middle, strict=True), *zip(offsets, others, strict=True)):
        order[at] = source
    return transposed(rows, order)


def _scatter(op: OperatorContext) -> list[Value]:
    if len(op.operands) != 3:
        raise UnsupportedFormError(f"of {len(op.operands) // 2} tensors at once")
    emit, (value, indices, updates) = op.emit, op.operands
    reducer = operator_of(op.operation.blocks[0])
    if reducer not in _REDUCTIONS or value.dtype == "bool":
        raise UnsupportedFormError(f"its inner program is {reducer}, of {value.dtype}")
    numbers = op.attribute("scatter_dimension_numbers")
    gone = [*numbers["inserted_window_dims"], *numbers["input_batching_dims"]]
    windows, dim = numbers["update_window_dims"], numbers["index_vector_dim"]
    shape = updates.shape
    batches = [i for i in range(len(shape)) if i not in windows]
    kept = [i for i in range(value.rank) if i not in gone]
    sizes = [1] * value.rank
    for along, at in zip(kept, windows, strict=True):
        sizes[along] = shape[at]
    strides, size = _strides(value.shape), math.prod(value.shape)
    positions, inside = splat(0, "int64", shape), splat(True, "bool", shape)
    for position, along in enumerate(numbers["scattered_dims_to_operand_dims"]):
        start = cast(emit, _component(emit, indices, dim, position), "int64")
        start = spread(emit, start, shape, batches)
        positions = emit.apply(
            "Add", positions, emit.apply("Mul", start, splat(strides[along], "int64", shape))
        )
        inside = _within(emit, inside, start, value.shape[along] - sizes[along])
    remaining = [i for i in range(indices.rank) if i != dim]
    for along, batch in zip(
        numbers["input_batching_dims"], numbers["scatter_indices_batching_dims"], strict=True
    ):
        positions = emit.apply(
            "Add", positions, _steps(shape, batches[remaining.index(batch)], strides[along])
        )
    for along, at in zip(kept, windows, strict=True):
        positions = emit.apply("Add", positions, _steps(shape, at, strides[along]))
    flat = reshaped(emit, value, [size])
    # Updates outside are dropped: they go to one extra element at the end.
    outside = one_number(inside) is not True
    if outside:
        positions = emit.apply("Where", inside, positions, splat(size, "int64", shape), dtype="int64")
        flat = padded(emit, flat, splat(0, value.dtype), [0], [1], [0])
    count = [math.prod(shape)]
    names = [
        emit.name(flat),
        *(emit.name(reshaped(emit, operand, count)) for operand in (positions, updates)),
    ]
    name = emit.node("ScatterElements", names, axis=0, reduction=_REDUCTIONS[reducer])
    result = emit.computed(name, flat.shape, value.dtype)
    if outside:
        result = sliced(emit, result, [0], [size], [1])
    return [reshaped(emit, result, value.shape)]


def _within(emit: Emitter, inside: Value, start: Value, largest: int) -> Value:
    shape = start.shape
    low = emit.apply("GreaterOrEqual", start, splat(0, "int64", shape), dtype="bool")
    high = emit.apply("LessOrEqual", start, splat(largest, "int64", shape), dtype="bool")
    return emit.apply("And", inside, emit.apply("And", low, high))


def _slice(op: OperatorContext) -> list[Value]:
    bounds = (op.ints(name) for name in ("start_indices", "limit_indices", "strides"))
    return [sliced(op.emit, op.operands[0], *bounds)]


def _starts(op: OperatorContext, first: int, sizes: Sequence[int]) -> list[Value]:
    """Return where a slice starts along each dimension, clamped so that the slice lies inside."""
    value = op.operands[0]
    return [
        _clipped(op.emit, start, value.shape[i] - sizes[i]) for i, start in enumerate(op.operands[first:])
    ]


def _dynamic_slice(op: OperatorContext) -> list[Value]:
    emit, value = op.emit, op.operands[0]
    sizes = op.ints("slice_sizes")
    for dim, start in enumerate(_starts(op, 1, sizes)):
        if sizes[dim] == value.shape[dim]:
            continue
        number = one_number(start)
        if number is not None:
            starts = [number if i == dim else 0 for i in range(value.rank)]
            ends = [number + sizes[dim] if i == dim else n for i, n in enumerate(value.shape)]
            value = sliced(emit, value, starts, ends, [1] * value.rank)
        else:
            counted = constant(np.arange(sizes[dim]))
            positions = emit.apply("Add", spread(emit, start, [sizes[dim]], []), counted)
            value = taken(emit, value, positions, dim)
    return [value]


def _dynamic_update_slice(op: OperatorContext) -> list[Value]:
    emit, value, update = op.emit, op.operands[0], op.operands[1]
    starts = _starts(op, 2, update.shape)
    dims = [i for i in range(value.rank) if update.shape[i] != value.shape[i]]
    if not dims:
        return [update]
    number = one_number(starts[dims[0]])
    if len(dims) == 1 and number is not None:
        return [_replaced(emit, value, update, dims[0], number)]
    inside = splat(True, "bool", value.shape)
    for dim in dims:
        shape, size = value.shape, update.shape[dim]
        counted = spread(emit, constant(np.arange(shape[dim])), shape, [dim])
        positions = emit.apply("Sub", counted, spread(emit, starts[dim], shape, []))
        inside = _within(emit, inside, positions, size - 1)
        row = emit.apply("Sub", constant(np.arange(shape[dim])), spread(emit, starts[dim], [shape[dim]], []))
        update = taken(emit, update, _clipped(emit, row, size - 1), dim)
    if value.dtype == "bool":
        wide = [cast(emit, operand, "int32") for operand in (update, value)]
        return [cast(emit, emit.apply("Where", inside, *wide, dtype="int32"), "bool")]
    return [emit.apply("Where", inside, update, value, dtype=value.dtype)]


def _replaced(emit: Emitter, value: Value, update: Value, dim: int, start: int) -> Value:
    parts = []
    for a, b in ((0, start), (start + update.shape[dim], value.shape[dim])):
        if a < b:
            starts = [a if i == dim else 0 for i in range(value.rank)]
            ends = [b if i == dim else n for i, n in enumerate(value.shape)]
            parts.append(sliced(emit, value, starts, ends, [1] * value.rank))
    parts.insert(1 if start else 0, update)
    return concatenated(emit, parts, dim)


def _index_select(op: OperatorContext) -> list[Value]:
    value, indices = op.operands
    if int(op.attribute("batch_dims", 0)):
        raise UnsupportedFormError("with dimensions that are batches")
    dim = int(op.attribute("dim"))
    return [taken(op.emit, value, _clipped(op.emit, indices, value.shape[dim] - 1), dim)]


CONVERTERS: Mapping[str, Converter] = {
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.torch_index_select": _index_select,
}
