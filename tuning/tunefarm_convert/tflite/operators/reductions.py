"""Operators over dimensions: sums, means, maxima, softmax, norms, top-k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import numpy as np
from onnx import TensorProto, helper

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.values import TO_FIRST

_SMALLEST_NORM = 1e-6
"""TFLite's lower bound of a norm that it divides by."""
_WINDOW_OPERATORS = {1: "Add", 2: "Mul", 3: "Min", 4: "Max", 5: "And", 6: "Or"}
"""By their numbers in the format."""
_MOST_IN_WINDOW = 64


def _stays_first(op: OperatorContext, axes: list[int], *, keep: bool) -> bool:
    """Return whether to reduce an image with its channels first: the remaining dimensions must be in the file's order."""
    index = op.index(0)
    if not op.prefers_first(index):
        return False
    remaining = [i for i in TO_FIRST if i not in axes]
    return keep or remaining == sorted(remaining)


def _moved(axes: list[int], *, first: bool) -> list[int]:
    return [TO_FIRST.index(axis) for axis in axes] if first else axes


def _reduce(operator: str) -> Converter:
    def convert(op: OperatorContext) -> None:
        rank = len(op.shape(0))
        axes = sorted({op.axis(a, rank) for a in op.ints(1, "the list of dimensions")})
        keep = bool(op.option("KeepDims", False))
        first = _stays_first(op, axes, keep=keep)
        x = op.values.get(op.index(0), first=first)
        if not axes:
            op.finish(x, first=first)
            return
        of_booleans = op.tensor(0).dtype == "bool"
        if of_booleans:
            x = op.node("Cast", x, to=TensorProto.INT32)
        result = op.node(operator, x, op.writer.ints(_moved(axes, first=first)), keepdims=int(keep))
        if of_booleans:
            result = op.node("Cast", result, to=TensorProto.BOOL)
        op.finish(result, first=first and keep)

    return convert


def _arg(operator: str) -> Converter:
    def convert(op: OperatorContext) -> None:
        axes = [op.axis(a, len(op.shape(0))) for a in op.ints(1, "the dimension")]
        if len(axes) != 1:
            raise op.unsupported_form(f"{len(axes)} dimensions")
        first = _stays_first(op, axes, keep=False)
        x = op.values.get(op.index(0), first=first)
        result = op.node(operator, x, axis=_moved(axes, first=first)[0], keepdims=0)
        dtype = op.values.tensor(op.output()).dtype
        if dtype != "int64":
            result = op.node("Cast", result, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        op.finish(result)

    return convert


def _softmax(operator: str) -> Converter:
    def convert(op: OperatorContext) -> None:
        rank = len(op.shape(0))
        first = op.prefers_first(op.index(0))
        x = op.values.get(op.index(0), first=first)
        beta = float(op.option("Beta", 1.0)) if operator == "Softmax" else 1.0
        if beta != 1.0:
            x = op.node("Mul", x, op.scalar(beta, op.index(0)))
        op.finish(op.node(operator, x, axis=1 if first else rank - 1), first=first)

    return convert


def _l2_normalization(op: OperatorContext) -> None:
    rank = len(op.shape(0))
    first = op.prefers_first(op.index(0))
    x = op.values.get(op.index(0), first=first)
    norm = op.node("ReduceL2", x, op.writer.ints([1 if first else rank - 1]), keepdims=1)
    norm = op.node("Max", norm, op.scalar(_SMALLEST_NORM, op.index(0)))
    op.finish(op.activated(op.node("Div", x, norm)), first=first)


def _top_k(op: OperatorContext) -> None:
    count = op.ints(1, "the requested number")
    indices = op.values.tensor(op.output(1)).dtype
    x = op.values.get(op.index(0))
    scope = op.writer.scope
    values, positions = op.writer.nodes(
        "TopK", [x, op.writer.ints(count)], [f"{scope}_values", f"{scope}_indices"], axis=-1
    )
    op.finish(values)
    if indices != "int64":
        positions = op.node("Cast", positions, to=helper.np_dtype_to_tensor_dtype(np.dtype(indices)))
    op.finish(positions, position=1)


def _cumsum(op: OperatorContext) -> None:
    axis = [op.axis(a, len(op.shape(0))) for a in op.ints(1, "the dimension")]
    result = op.node(
        "CumSum",
        op.values.get(op.index(0)),
        op.writer.weight(np.array(axis[0], np.int64)),
        exclusive=int(bool(op.option("Exclusive", False))),
        reverse=int(bool(op.option("Reverse", False))),
    )
    op.finish(result)


def _window(op: OperatorContext) -> tuple[list[int], list[int], list[int]]:
    """Return the sizes of a window, its strides, and the distances between its elements, for each dimension."""
    rank = len(op.shape(0))
    window, strides, dilations = (op.ints(i, "the window") for i in range(2, 5))
    if any(len(part) != rank or min(part, default=1) < 1 for part in (window, strides, dilations)):
        raise op.bad_file(f"a window of {window} does not fit {rank} dimensions")
    if math.prod(window) > _MOST_IN_WINDOW:
        raise op.unsupported_form(f"a window of {math.prod(window)} elements; the limit is {_MOST_IN_WINDOW}")
    return window, strides, dilations


def reduced_window_shape(op: OperatorContext) -> tuple[int, ...]:
    """Return the shape of the result of `REDUCE_WINDOW`."""
    parts = zip(op.shape(0), *_window(op), strict=True)
    sizes = [(size - (of - 1) * dilation - 1) // stride + 1 for size, of, stride, dilation in parts]
    if any(size < 1 for size in sizes):
        raise op.bad_file(f"the window is larger than {list(op.shape(0))}")
    return tuple(sizes)


def _reduce_window(op: OperatorContext) -> None:
    """Convert a reduction of windows to operations on slices, one for each element of the window."""
    operator = _WINDOW_OPERATORS.get(op.option("ReduceFunction"))
    if operator is None:
        raise op.unsupported_form(f"reduction number {op.option('ReduceFunction')} is not supported")
    window, strides, dilations = _window(op)
    sizes = reduced_window_shape(op)
    x, result = op.values.get(op.index(0)), op.values.get(op.index(1))
    axes, steps = op.writer.ints(range(len(sizes))), op.writer.ints(strides)
    for position in product(*map(range, window)):
        starts = [i * dilation for i, dilation in zip(position, dilations, strict=True)]
        ends = [s + (size - 1) * step + 1 for s, size, step in zip(starts, sizes, strides, strict=True)]
        part = op.node("Slice", x, op.writer.ints(starts), op.writer.ints(ends), axes, steps)
        result = op.node(operator, result, part)
    op.finish(result)


CONVERTERS: Mapping[str, Converter] = {
    "MEAN": _reduce("ReduceMean"),
    "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "REDUCE_ANY": _reduce("ReduceMax"),
    "REDUCE_ALL": _reduce("ReduceMin"),
    "REDUCE_WINDOW": _reduce_window,
    "ARG_MAX": _arg("ArgMax"),
    "ARG_MIN": _arg("ArgMin"),
    "SOFTMAX": _softmax("Softmax"),
    "LOG_SOFTMAX": _softmax("LogSoftmax"),
    "L2_NORMALIZATION": _l2_normalization,
    "TOPK_V2": _top_k,
    "CUMSUM": _cumsum,
}
