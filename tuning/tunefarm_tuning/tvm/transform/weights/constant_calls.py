"""The value of a call on constants, computed with NumPy: what exporters leave of positions, masks and tables, and steps on weights.

TVM's ``FoldConstant`` compiles a kernel with LLVM for each of these calls. It still folds what is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import operator_name, static_shape

Array = NDArray[Any]

_MAX_ELEMENTS = 1 << 20
"""The largest constant that smaller ones are repeated to here."""
_NUMBERS = "fiub"

_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "relax.ceil": np.ceil,
    "relax.cos": np.cos,
    "relax.divide": np.divide,
    "relax.exp": np.exp,
    "relax.floor": np.floor,
    "relax.log": np.log,
    "relax.nn.relu": lambda value: np.maximum(value, 0),
    "relax.power": np.power,
    "relax.sigmoid": lambda value: 1 / (1 + np.exp(-value)),
    "relax.sin": np.sin,
    "relax.sqrt": np.sqrt,
    "relax.tanh": np.tanh,
}
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "relax.abs": np.abs,
    "relax.add": np.add,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.multiply": np.multiply,
    "relax.negative": np.negative,
    "relax.subtract": np.subtract,
}
_OF_ANYTHING: dict[str, Callable[..., Any]] = {
    "relax.equal": np.equal,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_not": np.logical_not,
    "relax.logical_or": np.logical_or,
    "relax.not_equal": np.not_equal,
    "relax.where": np.where,
}
_BY_ELEMENT = ((_OF_FLOATS, "f"), (_OF_NUMBERS, "fiu"), (_OF_ANYTHING, _NUMBERS))
"""Operators that work element by element, with the kinds of numbers that they take."""
_RESHAPES = frozenset({"relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze"})


def _permuted(call: Any, value: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(value, None if axes is None else [int(axis) for axis in axes])


def _cast(call: Any, value: Array) -> Array | None:
    dtype = np.dtype(str(call.ty.dtype.dtype))
    if (
        value.dtype.kind not in "iub"
        and dtype.kind in "iu"
        and not np.isfinite(value.astype(np.float64)).all()
    ):
        return None
    return value.astype(dtype)


def _sliced(call: Any, value: Array) -> Array | None:
    axes, begins, ends, *strides = (_integers(argument) for argument in call.args[1:])
    steps = strides[0] if strides else [1] * len(axes or ())
    if axes is None or begins is None or ends is None or steps is None or min(steps, default=1) < 1:
        return None
    parts = [slice(None)] * value.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        parts[axis] = slice(begin, end, step)
    return value[tuple(parts)]


def _taken(call: Any, value: Array, indices: Array) -> Array | None:
    axis = call.attrs.axis
    size = value.size if axis is None else value.shape[int(axis)]
    if indices.size and not (indices.min() >= 0 and indices.max() < size):
        return None  # what is read there depends on the mode
    return np.take(value, indices, axis=None if axis is None else int(axis))


def _sizes(call: Any) -> Array | None:
    sizes = _integers(call.args[0].ty)
    return None if sizes is None else np.array(sizes, np.int64)


def _mean(call: Any, value: Array) -> Array:
    axes = None if call.attrs.axis is None else tuple(int(axis) for axis in call.attrs.axis)
    return np.asarray(np.mean(value, axis=axes, keepdims=bool(call.attrs.keepdims)))


def _softmax(call: Any, value: Array) -> Array:
    axis = int(call.attrs.axis)
    powers = np.exp(value - np.max(value, axis=axis, keepdims=True))
    return np.asarray(powers / np.sum(powers, axis=axis, keepdims=True))


_OF_WIDE_FLOATS: dict[str, Callable[..., Array]] = {
    "relax.matmul": lambda _call, first, second: np.matmul(first, second),
    "relax.mean": _mean,
    "relax.nn.softmax": _softmax,
}
"""Operators that add up: of float16, TVM does so in its own way."""
_OTHERS: dict[str, Callable[..., Array | None]] = {
    "relax.astype": _cast,
    "relax.broadcast_to": lambda call, value: np.broadcast_to(value, static_shape(call) or ()),
    "relax.concat": lambda call, *values: np.concatenate(values, axis=int(call.attrs.axis or 0)),
    "relax.permute_dims": _permuted,
    "relax.shape_to_tensor": _sizes,
    "relax.strided_slice": _sliced,
    "relax.take": _taken,
}


_READ_ALL = frozenset({"relax.take", *_OF_WIDE_FLOATS, *_OF_FLOATS, *_OF_NUMBERS, *_OF_ANYTHING})


def operands_of(call: Any) -> Sequence[Any] | None:
    """Return the tensors that a call reads; None if its value is not computed here."""
    name = operator_name(call)
    if name in _READ_ALL:
        return list(call.args)
    if name == "relax.shape_to_tensor":
        return []
    if name == "relax.concat":
        return list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else None
    return [call.args[0]] if name in _RESHAPES or name in _OTHERS else None


def constant_value(expr: Any) -> Array | None:
    """Return a constant's or a number's value; None if it is none, or of numbers that NumPy does not have."""
    if isinstance(expr, tirx.FloatImm | tirx.IntImm):
        return np.asarray(expr.value, dtype=str(expr.ty.dtype))
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    value: Array = expr.value.numpy()
    is_numpys = value.dtype.kind in _NUMBERS and str(value.dtype) == str(expr.value.dtype)
    return value if is_numpys else None


def value_of_call(call: Any, operands: Sequence[Array]) -> Array | None:
    """Return the value of a call.

    Args:
        call: One that `operands_of` knows.
        operands: The values of these.

    Returns:
        None if the call is left to TVM: it would become much larger than its operands, or computes with what is no number.
    """
    shape = static_shape(call)
    if shape is None or math.prod(shape) > max(_MAX_ELEMENTS, sum(operand.size for operand in operands)):
        return None
    with np.errstate(all="ignore"):
        value = _computed(call, shape, operands)
    if value is None or value.shape != shape or any(map(_has_nan, (*operands, value))):
        return None
    return np.ascontiguousarray(value, dtype=str(call.ty.dtype.dtype)).reshape(shape)


def _computed(call: Any, shape: tuple[int, ...], operands: Sequence[Array]) -> Array | None:
    name = operator_name(call)
    if name in _RESHAPES:
        return operands[0].reshape(shape)
    if name in _OTHERS:
        return _OTHERS[name](call, *operands)
    if name in _OF_WIDE_FLOATS:
        are_wide = all(str(operand.dtype) in {"float32", "float64"} for operand in operands)
        return _OF_WIDE_FLOATS[name](call, *operands) if are_wide else None
    if len({operand.dtype for operand in operands[-2:]}) > 1:  # the first of three is a condition
        return None
    operations, kinds = next(row for row in _BY_ELEMENT if name in row[0])
    return np.asarray(operations[name](*operands)) if operands[-1].dtype.kind in kinds else None


def _has_nan(value: Array) -> bool:
    return value.dtype.kind == "f" and bool(np.isnan(value).any())


def _integers(argument: Any) -> list[int] | None:
    """Return a tuple of integers, as slices and shapes have it; None if one is known only at run time."""
    values = getattr(argument, "values", getattr(argument, "fields", None))
    if values is None:
        return None
    inner = [value if isinstance(value, tirx.IntImm) else getattr(value, "value", None) for value in values]
    known = [int(value) for value in inner if isinstance(value, tirx.IntImm)]
    return known if len(known) == len(inner) else None
