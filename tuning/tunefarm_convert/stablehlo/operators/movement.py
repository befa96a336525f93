"""Moving elements without arithmetic: reshapes, transposes, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefarm_convert.onnx_writer import onnx_type
from tunefarm_convert.stablehlo.values import Emitter, Value, compact, constant


def transposed(value: Value, perm: Sequence[int]) -> Value:
    """Return a value whose dimension i is dimension perm[i] of the given one. This adds no node: only the order is renamed."""
    shape = tuple(value.shape[i] for i in perm)
    if value.data is not None:
        return constant(np.transpose(value.data, perm))
    position = {old: new for new, old in enumerate(perm)}
    return Value(
        shape=shape,
        dtype=value.dtype,
        held=tuple(value.held[i] for i in perm),
        forms={tuple(position[i] for i in order): name for order, name in value.forms.items()},
        whole={tuple(position[i] for i in order): name for order, name in value.whole.items()},
        broken=value.broken,
    )


def reshaped(emit: Emitter, value: Value, shape: Sequence[int]) -> Value:
    """Return a value in another shape, with its elements in the same order."""
    shape = tuple(shape)
    if shape == value.shape:
        return value
    pairs = _same_but_ones(value.shape, shape)
    if value.data is not None:
        if pairs is not None:
            small = compact(value.data)
            sizes = [1] * len(shape)
            for old, new in pairs:
                sizes[new] = small.shape[old]
            return constant(np.broadcast_to(small.reshape(sizes), shape))
        if compact(value.data).size == 1:
            return constant(np.broadcast_to(compact(value.data).reshape(()), shape))
        return constant(value.data.reshape(shape))
    if pairs is None:
        name = emit.node("Reshape", [emit.name(value), emit.writer.ints(shape)])
        return emit.computed(name, shape, value.dtype)
    return _with_ones(emit, value, shape, pairs)


def _same_but_ones(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return pairs of equal dimensions if two shapes differ in dimensions of size one only, otherwise None."""
    a = [i for i, size in enumerate(old) if size != 1]
    b = [i for i, size in enumerate(new) if size != 1]
    if [old[i] for i in a] != [new[i] for i in b]:
        return None
    return list(zip(a, b, strict=True))


def _with_ones(emit: Emitter, value: Value, shape: tuple[int, ...], pairs: list[tuple[int, int]]) -> Value:
    """Add and remove dimensions of size one, keeping the order in which the value is held."""
    position = dict(pairs)
    held = [1] * len(shape)
    for old, new in pairs:
        held[new] = value.held[old]
    first = value.order
    reordered = [position[i] for i in first if i in position]
    ones = [i for i in range(len(shape)) if i not in position.values()]
    order = tuple(range(len(shape))) if reordered == sorted(reordered) else (*ones, *reordered)
    name = emit.name(value, first, whole=False)
    name = emit.node("Reshape", [name, emit.writer.ints([held[i] for i in order])])
    return emit.computed(name, shape, value.dtype, order, held)


def spread(emit: Emitter, value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """Broadcast a value to `shape`; its dimension i is dimension dims[i] of the result, the others are new."""
    shape = tuple(shape)
    order = sorted(range(value.rank), key=lambda i: dims[i])
    value = transposed(value, order)
    sizes = [1] * len(shape)
    for size, dim in zip(value.shape, sorted(dims), strict=True):
        sizes[dim] = size
    value = reshaped(emit, value, sizes)
    if value.data is not None:
        return constant(np.broadcast_to(value.data, shape))
    return Value(
        shape=shape,
        dtype=value.dtype,
        held=tuple(
            1 if held_size == 1 else size for held_size, size in zip(value.held, value.shape, strict=True)
        ),
        forms=dict(value.forms),
        broken=value.broken,
    )


def cast(emit: Emitter, value: Value, dtype: str) -> Value:
    """Cast a value as ONNX does."""
    return value if value.dtype == dtype else emit.apply("Cast", value, dtype=dtype, to=onnx_type(dtype))


def sliced(
    emit: Emitter, value: Value, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> Value:
    """Return a slice of a value, with positive steps."""
    parts = tuple(slice(a, b, s) for a, b, s in zip(starts, ends, steps, strict=True))
    sizes = tuple(len(range(*part.indices(size))) for part, size in zip(parts, value.shape, strict=True))
    if sizes == value.shape:
        return value
    if value.data is not None:
        return constant(value.data[parts])
    dims = [i for i in range(value.rank) if sizes[i] != value.shape[i] and value.held[i] != 1]
    held = [sizes[i] if i in dims else min(value.held[i], sizes[i]) for i in range(value.rank)]
    order = value.order
    name = emit.name(value, order, whole=False)
    if dims:
        ints = emit.writer.ints
        name = emit.node(
            "Slice",
            [
                name,
                ints([starts[i] for i in dims]),
                ints([ends[i] for i in dims]),
                ints([order.index(i) for i in dims]),
                ints([steps[i] for i in dims]),
            ],
        )
    return emit.computed(name, sizes, value.dtype, order, held)


def reversed_along(emit: Emitter, value: Value, dims: Sequence[int]) -> Value:
    """Reverse a value along dimensions."""
    dims = [i for i in dims if value.held[i] != 1]
    if not dims:
        return value
    if value.data is not None:
        return constant(np.flip(value.data, tuple(dims)))
    order, ints = value.order, emit.writer.ints
    far = np.iinfo(np.int64)
    bounds = [ints([-1] * len(dims)), ints([int(far.min) + 1] * len(dims))]
    axes = [ints([order.index(i) for i in dims]), ints([-1] * len(dims))]
    name = emit.node("Slice", [emit.name(value, order, whole=False), *bounds, *axes])
    return emit.computed(name, value.shape, value.dtype, order, value.held)


def concatenated(emit: Emitter, values: Sequence[Value], dim: int) -> Value:
    """Concatenate values along a dimension."""
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    shape[dim] = sum(value.shape[dim] for value in values)
    known = [value.data for value in values if value.data is not None]
    if len(known) == len(values):
        return constant(np.concatenate(known, axis=dim))
    order = emit.common_order(values)
    names = [emit.name(value, order) for value in values]
    return emit.computed(emit.node("Concat", names, axis=order.index(dim)), shape, values[0].dtype, order)


def padded(
    emit: Emitter, value: Value, around: Value, low: Sequence[int], high: Sequence[int], inner: Sequence[int]
) -> Value:
    """Pad a value with one number, around it and between its elements; negative `low` or `high` cuts."""
    if any(inner):
        value = _spaced(emit, value, around, inner)
    cut_low, cut_high = [max(-n, 0) for n in low], [max(-n, 0) for n in high]
    low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    # More may be cut than there is, if the other side is padded.
    first = [max(cut - size, 0) for cut, size in zip(cut_low, value.shape, strict=True)]
    last = [max(cut - size, 0) for cut, size in zip(cut_high, value.shape, strict=True)]
    if any(first) or any(last):
        value = _extended(emit, value, around, last, first)
        low = [n - m for n, m in zip(low, last, strict=True)]
        high = [n - m for n, m in zip(high, first, strict=True)]
    ends = [size - cut for size, cut in zip(value.shape, cut_high, strict=True)]
    value = sliced(emit, value, cut_low, ends, [1] * value.rank)
    return _extended(emit, value, around, low, high)


def _extended(emit: Emitter, value: Value, around: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    if not any(low) and not any(high):
        return value
    shape = tuple(a + size + b for a, size, b in zip(low, value.shape, high, strict=True))
    if value.data is not None and around.data is not None:
        number = around.data.reshape(())
        if compact(value.data).size == 1 and compact(value.data).reshape(()) == number:
            return constant(np.broadcast_to(number, shape))
        data = np.full(shape, number, value.data.dtype)
        data[tuple(slice(a, a + size) for a, size in zip(low, value.shape, strict=True))] = value.data
        return constant(data)
    order = value.order
    pads = [low[i] for i in order] + [high[i] for i in order]
    # ONNX Runtime cannot pad some dtypes: a wider one holds all their numbers.
    dtype = {"bool": "int32", "int16": "int32", "uint16": "int32"}.get(value.dtype, value.dtype)
    inputs = [
        emit.name(cast(emit, value, dtype), order),
        emit.writer.ints(pads),
        emit.name(cast(emit, around, dtype)),
    ]
    result = emit.computed(emit.node("Pad", inputs, mode="constant"), shape, dtype, order)
    return cast(emit, result, value.dtype)


def _spaced(emit: Emitter, value: Value, around: Value, inner: Sequence[int]) -> Value:
    for dim, gap in enumerate(inner):
        size = value.shape[dim]
        if gap == 0 or size < 2:
            continue
        shape = value.shape
        split = reshaped(emit, value, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        high = [gap if i == dim + 1 else 0 for i in range(split.rank)]
        split = _extended(emit, split, around, [0] * split.rank, high)
        joined = reshaped(emit, split, (*shape[:dim], size * (gap + 1), *shape[dim + 1 :]))
        ends = [size * (gap + 1) - gap if i == dim else n for i, n in enumerate(joined.shape)]
        value = sliced(emit, joined, [0] * joined.rank, ends, [1] * joined.rank)
    return value


def taken(emit: Emitter, value: Value, indices: Value, dim: int) -> Value:
    """Gather elements of a value along a dimension, which the dimensions of `indices` replace; all must be in range."""
    shape = (*value.shape[:dim], *indices.shape, *value.shape[dim + 1 :])
    if value.data is not None and indices.data is not None:
        return constant(np.take(value.data, indices.data, axis=dim))
    name = emit.node("Gather", [emit.name(value), emit.name(indices)], axis=dim)
    return emit.computed(name, shape, value.dtype)
