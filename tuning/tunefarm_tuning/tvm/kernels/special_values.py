"""Kernels for operators in which TVM's own lose a NaN, or leave the range.

``max(x, 0)`` is 0 for a NaN, ``max(0, x)`` is the NaN (what comes second goes through), and costs the same. The index of a maximum
begins at -1, and stays there where nothing is above the least finite number, or the least integer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

Legalize = Callable[[Any, Any], Any]
Binary = Callable[[Any, Any], Any]


def legalize_ops(others: Mapping[str, Legalize] | None = None) -> Any:
    """Return the pass that makes kernels of operators, these among them. To be run before TVM's.

    Args:
        others: What takes the place of some of these, which are made for a CPU.
    """
    return relax.transform.LegalizeOps(
        {
            "relax.argmax": _index(topi.argmax, "argmax"),
            "relax.argmin": _index(topi.argmin, "argmin"),
            "relax.maximum": _of_two(topi.maximum, "maximum"),
            "relax.minimum": _of_two(topi.minimum, "minimum"),
            "relax.nn.relu": _elementwise(lambda value: tirx.max(_like(value, 0), value), "relu"),
            "relax.sign": _elementwise(_sign, "tir_sign"),
            **(others or {}),
        }
    )


def _elementwise(function: Callable[[Any], Any], name: str) -> Legalize:
    def kernel(x: Any) -> Any:
        return te.compute(x.shape, lambda *i: function(x[i]), name="compute", tag="elemwise")

    return lambda builder, call: builder.call_te(kernel, call.args[0], primfunc_name_hint=name)


def _sign(value: Any) -> Any:
    # What is neither above nor below is a zero or NaN.
    below = tirx.Select(value < _like(value, 0), _like(value, -1), value)
    return tirx.Select(value > _like(value, 0), _like(value, 1), below)


def _of_two(tvms: Binary, name: str) -> Legalize:
    """Return how a maximum or minimum of two tensors is made."""

    def either(a: Any, b: Any) -> Any:
        return topi.where(topi.isnan(a), a, tvms(a, b))

    def legalize(builder: Any, call: Any) -> Any:
        first, second = call.args
        if _has_no_nan(second):
            first, second = second, first
        kernel = tvms if _has_no_nan(first) else either
        if kernel is tvms:
            first = _scalar(first)
        return builder.call_te(kernel, first, second, primfunc_name_hint=name)

    return legalize


def _index(tvms: Callable[..., Any], name: str) -> Legalize:
    """Return how the place of a maximum or minimum along an axis is made: the first, where nothing is above the start."""

    def kernel(x: Any, axis: Any, keepdims: bool) -> Any:
        place = tvms(x, axis, keepdims)
        return topi.maximum(place, tirx.const(0, place.dtype))

    return lambda builder, call: builder.call_te(
        kernel, call.args[0], call.attrs.axis, bool(call.attrs.keepdims), primfunc_name_hint=name
    )


def _is_float(x: Any) -> bool:
    return str(x.ty.dtype.dtype).startswith("float")


def _has_no_nan(x: Any) -> bool:
    if not _is_float(x):
        return True
    return isinstance(x, tvm.ir.GenericConst) and not np.isnan(x.value.numpy()).any()


def _scalar(x: Any) -> Any:
    """Return a constant without dimensions as a number in the kernel."""
    if isinstance(x, tvm.ir.GenericConst) and x.ty.ndim == 0:
        return tirx.const(x.value.numpy().item(), str(x.ty.dtype.dtype))
    return x


def _like(value: Any, number: float) -> Any:
    return tirx.const(number, str(value.expr_ty().dtype))
