"""Reductions over a sliding window: pools and running sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import numpy as np

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.movement import padded, reshaped, sliced, transposed
from tunefarm_convert.stablehlo.operators.reductions import combined, reduced, with_start
from tunefarm_convert.stablehlo.operators.regions import neutral, operator_of
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.values import Emitter, Value, splat

_MOST_TAPS = 64
"""Maximum number of elements of a window that is combined element by element."""
_MOST_DIMS = 3
"""Maximum number of dimensions that ONNX's pools slide along."""


class _Window:
    """The movement of a window, per dimension of the value: strides, padding, dilation of the value and of the window."""

    def __init__(self, op: OperatorContext, rank: int) -> None:
        ones = [1] * rank
        self.sizes = op.ints("window_dimensions")
        self.strides = op.ints("window_strides", ones)
        self.gaps = op.ints("base_dilations", ones)
        self.dilations = op.ints("window_dilations", ones)
        padding = op.ints("padding", [0] * 2 * rank)
        self.low, self.high = padding[::2], padding[1::2]

    def slides(self, dim: int) -> bool:
        trivial = (self.sizes[dim], self.strides[dim], self.low[dim], self.high[dim])
        return trivial != (1, 1, 0, 0)


def _reduce_window(op: OperatorContext) -> list[Value]:
    if len(op.operands) != 2:
        raise UnsupportedFormError(f"of {len(op.operands) // 2} tensors at once")
    value, start = op.operands
    reducer = operator_of(op.operation.blocks[0])
    if reducer == "assign" or (reducer in ("and", "or") and value.dtype != "bool"):
        raise UnsupportedFormError(f"its inner program is {reducer}, of {value.dtype}")
    window = _Window(op, value.rank)
    around = splat(neutral(reducer, value.dtype), value.dtype)
    emit = op.emit
    if any(gap > 1 for gap in window.gaps):
        value = padded(emit, value, around, window.low, window.high, [gap - 1 for gap in window.gaps])
        window.low = window.high = [0] * value.rank
    cut = [min(n, 0) for n in window.low], [min(n, 0) for n in window.high]
    value = padded(emit, value, around, *cut, [0] * value.rank)
    window.low, window.high = [max(n, 0) for n in window.low], [max(n, 0) for n in window.high]
    result = _running(emit, reducer, value, window)
    result = result or _whole(emit, reducer, value, window)
    result = result or _pooled(emit, reducer, value, window)
    result = result or _put_together(emit, reducer, value, window, around)
    return [with_start(emit, reducer, result, start)]


def _running(emit: Emitter, reducer: str, value: Value, window: _Window) -> Value | None:
    """Return a running sum, from either side, if the window makes one."""
    dims = [i for i in range(value.rank) if window.slides(i)]
    if reducer != "add" or len(dims) != 1 or value.data is not None or value.dtype in ("float16", "bfloat16"):
        return None
    (dim,) = dims
    size = value.shape[dim]
    form = (window.sizes[dim], window.strides[dim], window.dilations[dim])
    around = (window.low[dim], window.high[dim])
    if size < 2 or form != (size, 1, 1) or around not in ((size - 1, 0), (0, size - 1)):
        return None
    if value.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    axis = emit.writer.weight(np.array(dim, np.int64))
    name = emit.node("CumSum", [emit.name(value), axis], reverse=int(around[0] == 0))
    return emit.computed(name, value.shape, value.dtype)


def _whole(emit: Emitter, reducer: str, value: Value, window: _Window) -> Value | None:
    """Reduce whole dimensions, if the window is as large as those that it slides along."""
    dims = [i for i in range(value.rank) if window.slides(i)]
    if any(
        window.sizes[i] != value.shape[i] or window.low[i] or window.high[i] or window.dilations[i] > 1
        for i in dims
    ):
        return None
    result = reduced(emit, reducer, value, dims)
    return reshaped(emit, result, [1 if i in dims else size for i, size in enumerate(value.shape)])


def _pooled(emit: Emitter, reducer: str, value: Value, window: _Window) -> Value | None:
    """Return the result of ONNX's pools; None if they have no such form."""
    dims = [i for i in range(value.rank) if window.slides(i)]
    if value.dtype not in ("float16", "bfloat16", "float32") or value.data is not None:
        return None
    if reducer not in ("maximum", "minimum", "add") or len(dims) > _MOST_DIMS:
        return None
    if reducer == "add" and any(window.dilations[i] > 1 for i in dims):
        return None
    still = [i for i in range(value.rank) if i not in dims]
    moved = transposed(value, [*still, *dims])
    if len(still) != 2:
        moved = reshaped(emit, moved, [1, math.prod(moved.shape[: len(still)]), *moved.shape[len(still) :]])
    pads = [[side[i] for i in dims] for side in (window.low, window.high)]
    kernel = [window.sizes[i] for i in dims]
    if any(pad >= size for side in pads for pad, size in zip(side, kernel, strict=True)):
        # No window of ONNX's may lie only in the padding: ONNX Runtime computes wrong extrema of infinities alone.
        if reducer != "add" and math.prod(kernel) <= _MOST_TAPS:
            return None
        around = splat(neutral(reducer, value.dtype), value.dtype)
        moved = padded(emit, moved, around, [0, 0, *pads[0]], [0, 0, *pads[1]], [0] * moved.rank)
        pads = [[0] * len(dims)] * 2
    if reducer == "minimum":
        moved = emit.apply("Neg", moved)
    extra = (
        {"count_include_pad": 1} if reducer == "add" else {"dilations": [window.dilations[i] for i in dims]}
    )
    name = emit.node(
        "AveragePool" if reducer == "add" else "MaxPool",
        [emit.name(moved)],
        kernel_shape=kernel,
        strides=[window.strides[i] for i in dims],
        pads=[*pads[0], *pads[1]],
        **extra,
    )
    sizes = [_positions(moved.shape[n + 2] + pads[0][n] + pads[1][n], window, i) for n, i in enumerate(dims)]
    result = emit.computed(name, (*moved.shape[:2], *sizes), value.dtype)
    if reducer == "minimum":
        result = emit.apply("Neg", result)
    if reducer == "add":
        result = emit.apply("Mul", result, splat(math.prod(kernel), result.dtype, result.shape))
    result = reshaped(emit, result, [*(value.shape[i] for i in still), *sizes])
    back = [0] * value.rank
    for position, dim in enumerate((*still, *dims)):
        back[dim] = position
    return transposed(result, back)


def _positions(size: int, window: _Window, dim: int) -> int:
    return (size - (window.sizes[dim] - 1) * window.dilations[dim] - 1) // window.strides[dim] + 1


def _put_together(emit: Emitter, reducer: str, value: Value, window: _Window, around: Value) -> Value:
    """Combine shifted copies of the value, one for each element of the window."""
    if math.prod(window.sizes) > _MOST_TAPS:
        raise UnsupportedFormError(
            f"a window of {math.prod(window.sizes)} elements in this form; tunefarm supports up to "
            f"{_MOST_TAPS}"
        )
    value = padded(emit, value, around, window.low, window.high, [0] * value.rank)
    counts = [_positions(size, window, i) for i, size in enumerate(value.shape)]
    result: Value | None = None
    for offset in product(*(range(size) for size in window.sizes)):
        starts = [n * d for n, d in zip(offset, window.dilations, strict=True)]
        ends = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, counts, window.strides, strict=True)
        ]
        tap = sliced(emit, value, starts, ends, window.strides)
        result = tap if result is None else combined(emit, reducer, result, tap)
    assert result is not None
    return result


CONVERTERS: Mapping[str, Converter] = {"stablehlo.reduce_window": _reduce_window}
