"""Constant folding: compute ONNX's operators on constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_ELEMENTS = 1 << 22
"""Largest constant that is folded, in elements."""


def _divide(a: NDArray[Any], b: NDArray[Any]) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    if not np.all(b):
        raise ZeroDivisionError
    return (a - np.fmod(a, b)) // b


def _remainder(a: NDArray[Any], b: NDArray[Any]) -> Any:
    if a.dtype.kind in "iu" and not np.all(b):
        raise ZeroDivisionError
    return np.fmod(a, b)


def _sigmoid(x: NDArray[Any]) -> Any:
    unit = np.ones((), x.dtype)
    return unit / (unit + np.exp(-x))


_FOLDED: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.invert,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Div": _divide,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": _remainder,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Reciprocal": lambda x: np.ones((), x.dtype) / x,
    "Relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "Round": np.rint,
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Where": np.where,
    "Xor": np.logical_xor,
}


def fold(operator: str, arrays: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return an ONNX operator's result (`Cast` included) on constants of matching shapes; None if it is not folded."""
    if max((array.size for array in arrays), default=0) > LARGEST_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        if operator == "Cast":
            return _cast(arrays[0], dtype)
        if operator not in _FOLDED:
            return None
        try:
            return np.asarray(_FOLDED[operator](*arrays)).astype(dtype, copy=False)
        except (ZeroDivisionError, TypeError, ValueError):
            return None


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if dtype.kind in "iu" and array.dtype.kind not in "iub":
        real = array.astype(np.float64)
        ends = np.iinfo(dtype)
        if not np.all(np.isfinite(real)) or np.any(real < ends.min) or np.any(real > ends.max):
            return None
    return array.astype(dtype)
