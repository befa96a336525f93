"""Operators that write elements into a tensor: scatters, slices that replace others, diagonals."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from tunefarm_convert.tflite.converter import Converter, OperatorContext

_LARGEST = 1 << 28
_LONGEST = 1 << 24
"""Maximum number of positions along a dimension that are listed."""


def _filled(op: OperatorContext, sizes: list[int], value: str) -> str:
    if min(sizes, default=1) < 1 or math.prod(sizes) > _LARGEST:
        raise op.bad_file(f"it makes a tensor of shape {sizes[:16]}")
    return op.node("Expand", value, op.writer.ints(sizes))


def _scatter(op: OperatorContext) -> None:
    """Elements that are written to one place are added up."""
    sizes = op.ints(2, "the shape")
    zeros = _filled(op, sizes, op.scalar(0, op.index(1)))
    indices = op.node("Cast", op.values.get(op.index(0)), to=TensorProto.INT64)
    op.values.set_shape(op.output(), tuple(sizes))
    op.finish(op.node("ScatterND", zeros, indices, op.values.get(op.index(1)), reduction="add"))


def _to_dense(op: OperatorContext) -> None:
    sizes, places = op.ints(1, "the shape"), op.shape(0)
    values = op.shape(2)
    if len(places) > 2 or math.prod(places) % len(sizes or [1]):
        raise op.bad_file(f"positions of shape {list(places)} do not fit {sizes}")
    count = math.prod(places) // len(sizes)
    rest = op.node("Cast", op.values.reshaped(op.index(0), [count, len(sizes)]), to=TensorProto.INT64)
    elements = op.values.get(op.index(2))
    elements = op.node("Expand", elements, op.writer.ints([count])) if not values else elements
    default = op.values.get(op.index(3)) if op.has(3) else op.scalar(0, op.index(2))
    op.values.set_shape(op.output(), tuple(sizes))
    op.finish(op.node("ScatterND", _filled(op, sizes, default), rest, elements))


def _update_slice(op: OperatorContext) -> None:
    """Replace a part of a tensor; it begins where it still fits."""
    whole, part = op.shape(0), op.shape(1)
    if len(whole) != len(part) or any(a < b for a, b in zip(whole, part, strict=True)):
        raise op.bad_file(f"a part of shape {list(part)} does not fit {list(whole)}")
    if max(whole, default=0) > _LONGEST:
        raise op.unsupported_form(f"a tensor of shape {list(whole)}; the limit of a dimension is {_LONGEST}")
    starts = op.node("Cast", op.values.get(op.index(2)), to=TensorProto.INT64)
    result, inside = op.values.get(op.index(1)), None
    for axis, (size, count) in enumerate(zip(whole, part, strict=True)):
        if size == count:
            continue
        start = op.node("Gather", starts, op.writer.ints([axis]), axis=0)
        start = op.node("Min", op.node("Max", start, op.writer.ints([0])), op.writer.ints([size - count]))
        rows = op.node("Sub", op.writer.weight(np.arange(size, dtype=np.int64)), start)
        nearest = op.node("Min", op.node("Max", rows, op.writer.ints([0])), op.writer.ints([count - 1]))
        result = op.node("Gather", result, nearest, axis=axis)
        shape = [size if i == axis else 1 for i in range(len(whole))]
        here = op.node("Reshape", op.node("Equal", rows, nearest), op.writer.ints(shape))
        inside = here if inside is None else op.node("And", inside, here)
    if inside is not None:
        result = op.node("Where", inside, result, op.values.get(op.index(0)))
    op.finish(result)


def _diagonal(op: OperatorContext) -> None:
    sets = op.operator.kind == "MATRIX_SET_DIAG"
    shape = op.shape(1 if sets else 0)
    if not shape or (sets and op.shape(0) != (*shape, shape[-1])):
        raise op.unsupported_form(f"a diagonal of shape {list(shape)} of a matrix that is not square")
    on = op.writer.weight(np.eye(shape[-1], dtype=bool))
    column = op.node("Unsqueeze", op.values.get(op.index(1 if sets else 0)), op.writer.ints([-1]))
    other = op.values.get(op.index(0)) if sets else op.scalar(0, op.index(0))
    op.values.set_shape(op.output(), (*shape, shape[-1]))
    op.finish(op.node("Where", on, column, other))


def _segments(reduction: str) -> Converter:
    """Return the converter of operators that reduce the rows of each segment; those whose number is no segment's are left out."""

    def convert(op: OperatorContext) -> None:
        places, shape = op.shape(1), op.shape(0)
        if shape[: len(places)] != places or not places:
            raise op.bad_file(f"segments of shape {list(places)} do not fit {list(shape)}")
        if op.operator.kind == "SEGMENT_SUM":
            count = max(op.ints(1, "the list of segments"), default=-1) + 1
        else:
            (count,) = op.ints(2, "the number of segments")
        rest = list(shape[len(places) :])
        ids = op.node("Cast", op.values.reshaped(op.index(1), [math.prod(places), 1]), to=TensorProto.INT64)
        spare = op.writer.weight(np.array(count, np.int64))
        outside = op.node("Less", ids, op.writer.weight(np.array(0, np.int64)))
        ids = op.node("Min", op.node("Where", outside, spare, ids), spare)
        rows = op.values.reshaped(op.index(0), [math.prod(places), *rest])
        filled = _filled(op, [count + 1, *rest], op.scalar(_nothing(op, reduction), op.index(0)))
        reduced = op.node("ScatterND", filled, ids, rows, reduction=reduction)
        first, last, axis = (op.writer.ints([number]) for number in (0, count, 0))
        op.values.set_shape(op.output(), (count, *rest))
        op.finish(op.node("Slice", reduced, first, last, axis))

    return convert


def _nothing(op: OperatorContext, reduction: str) -> float | int:
    """Return what a segment without rows becomes."""
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    dtype = np.dtype(op.tensor(0).dtype)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    nothing = limits.min if reduction == "max" else limits.max
    return float(nothing) if dtype.kind == "f" else int(nothing)


CONVERTERS: Mapping[str, Converter] = {
    "SCATTER_ND": _scatter,
    "SPARSE_TO_DENSE": _to_dense,
    "DYNAMIC_UPDATE_SLICE": _update_slice,
    "MATRIX_DIAG": _diagonal,
    "MATRIX_SET_DIAG": _diagonal,
    "SEGMENT_SUM": _segments("add"),
    "UNSORTED_SEGMENT_MAX": _segments("max"),
    "UNSORTED_SEGMENT_MIN": _segments("min"),
    "UNSORTED_SEGMENT_PROD": _segments("mul"),
    "UNSORTED_SEGMENT_SUM": _segments("add"),
}
