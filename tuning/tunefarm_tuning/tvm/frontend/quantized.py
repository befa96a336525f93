"""Quantised operators: each becomes what ONNX says that it means, scaled to floats, computed, and rounded again.

Written with plain arithmetic on constants of full rank: TVM's own `quantize` and `dequantize` have no layout rules, so
that a quantised network would transpose around each of them. Results are those of ONNX Runtime within a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax

from tunefarm_tuning.tvm.frontend.scope import (
    Scope,
    UnsupportedFormError,
    axis_of,
    const,
    constant,
    dtype_of,
    full_rank,
    needed_shape,
)


def dequantize(scope: Scope, q: Any, scale: Any, zero: Any, *, axis: int = 1, block: int = 0) -> Any:
    """Return ``(q - zero) * scale``."""
    shape = needed_shape(q)
    out = dtype_of(scale)
    exact = dtype_of(q) in ("int32", "uint32", "int64") and zero is not None
    x = q if exact else scope.emit(relax.op.astype(q, out))
    if zero is not None and not _is_zero(zero):
        wide = _spread(scope, zero, shape, axis, block)
        wide = scope.emit(relax.op.astype(wide, dtype_of(x))) if dtype_of(wide) != dtype_of(x) else wide
        x = scope.emit(relax.op.subtract(x, wide))
    if dtype_of(x) != out:
        x = scope.emit(relax.op.astype(x, out))
    return scope.emit(relax.op.multiply(x, _spread(scope, scale, shape, axis, block)))


def quantize(
    scope: Scope, x: Any, scale: Any, zero: Any, *, dtype: str, axis: int = 1, block: int = 0
) -> Any:
    """Return ``x / scale + zero``, rounded to the nearest (ties to even) and cut off at the ends of the dtype."""
    shape = needed_shape(x)
    rank, inner = len(shape), dtype_of(x)
    q = scope.emit(relax.op.divide(x, _as(scope, _spread(scope, scale, shape, axis, block), inner)))
    q = scope.emit(relax.op.round(q))
    if zero is not None and not _is_zero(zero):
        q = scope.emit(relax.op.add(q, _as(scope, _spread(scope, zero, shape, axis, block), inner)))
    ends = np.iinfo(dtype)
    q = scope.emit(relax.op.maximum(q, full_rank(ends.min, rank, inner)))
    q = scope.emit(relax.op.minimum(q, full_rank(ends.max, rank, inner)))
    return scope.emit(relax.op.astype(q, dtype))


def convert_dequantize(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `DequantizeLinear`."""
    q, scale, zero = _three(inputs)
    made = dequantize(
        scope, q, scale, zero, axis=attributes.get("axis", 1), block=attributes.get("block_size", 0)
    )
    wanted = attributes.get("output_dtype")
    return _as(scope, made, str(onnx.helper.tensor_dtype_to_np_dtype(wanted))) if wanted else made


def convert_quantize(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QuantizeLinear`."""
    x, scale, zero = _three(inputs)
    wanted = attributes.get("output_dtype")
    if zero is not None:
        dtype = dtype_of(zero)
    else:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(wanted)) if wanted else "uint8"
    if attributes.get("precision"):
        raise UnsupportedFormError("another precision than the input's is not supported")
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    return quantize(scope, x, scale, zero, dtype=dtype, axis=axis, block=block)


def convert_q_conv(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QLinearConv`."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    arguments = [dequantize(scope, x, x_scale, x_zero), dequantize(scope, w, w_scale, w_zero, axis=0)]
    if len(inputs) > 8 and inputs[8] is not None:
        both = scope.emit(relax.op.multiply(x_scale, w_scale))
        arguments.append(dequantize(scope, inputs[8], both, None, axis=0))
    y = scope.node("Conv", *arguments, **attributes)
    return quantize(scope, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def convert_q_matmul(scope: Scope, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `QLinearMatMul`: the first matrix may have a scale per row, the second one per column."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
    left = dequantize(scope, a, a_scale, a_zero, axis=len(needed_shape(a)) - 2)
    right = dequantize(scope, b, b_scale, b_zero, axis=len(needed_shape(b)) - 1)
    y = scope.node("MatMul", left, right)
    return quantize(scope, y, y_scale, y_zero, dtype=dtype_of(y_zero), axis=len(needed_shape(y)) - 2)


def convert_conv_integer(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ConvInteger`, in 32-bit integers."""
    x, w = inputs[0], inputs[1]
    zeros = [inputs[i] if len(inputs) > i else None for i in (2, 3)]
    return scope.node("Conv", _offset(scope, x, zeros[0], 1), _offset(scope, w, zeros[1], 0), **attributes)


def convert_q_gemm(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert ONNX Runtime's `QGemm`, whose result is of floats where no scale is given for it."""
    a, a_scale, a_zero, b, b_scale, b_zero = inputs[:6]
    c, y_scale, y_zero = [inputs[i] if len(inputs) > i else None for i in (6, 7, 8)]
    columns = 0 if attributes.get("transB", 0) else 1
    arguments = [dequantize(scope, a, a_scale, a_zero), dequantize(scope, b, b_scale, b_zero, axis=columns)]
    alpha = float(attributes.get("alpha", 1.0))
    if c is not None:
        both = scope.emit(relax.op.multiply(a_scale, b_scale))
        both = scope.emit(relax.op.multiply(both, const(np.array([alpha], np.float32))))
        arguments.append(dequantize(scope, c, both, None, axis=len(needed_shape(c)) - 1))
    y = scope.node("Gemm", *arguments, **attributes)
    return y if y_scale is None else quantize(scope, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def convert_q_binary(operator: str) -> Callable[[Scope, Sequence[Any], dict[str, Any]], Any]:
    """Make a converter of ONNX Runtime's `QLinearAdd` and `QLinearMul`."""

    def convert(scope: Scope, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = [*inputs, None][:8]
        y = scope.node(operator, dequantize(scope, a, a_scale, a_zero), dequantize(scope, b, b_scale, b_zero))
        return quantize(scope, y, y_scale, y_zero, dtype=dtype_of(a))

    return convert


def convert_q_unary(operator: str) -> Callable[[Scope, Sequence[Any], dict[str, Any]], Any]:
    """Make a converter of ONNX Runtime's quantised operators of one tensor."""

    def convert(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        x, x_scale, x_zero, y_scale, y_zero = [*inputs, None][:5]
        rest = dict(attributes)
        if rest.pop("channels_last", 0):
            raise UnsupportedFormError("channels_last is not supported")
        y = scope.node(operator, dequantize(scope, x, x_scale, x_zero), **rest)
        return quantize(scope, y, y_scale, y_zero, dtype=dtype_of(x))

    return convert


def convert_q_concat(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert ONNX Runtime's `QLinearConcat`."""
    y_scale, y_zero, *rest = inputs
    parts = [dequantize(scope, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    y = scope.node("Concat", *parts, **attributes)
    return quantize(scope, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def _three(inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
    return inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None


def _is_zero(zero: Any) -> bool:
    value = constant(zero)
    return value is not None and not value.any()


def _spread(scope: Scope, x: Any, shape: Sequence[int], axis: int, block: int) -> Any:
    """Return a scale or zero point so that it broadcasts over a tensor: of one element, per slice of an axis, per block."""
    given, rank = needed_shape(x), len(shape)
    if block:
        axis = axis_of(axis, rank)
        wide = scope.emit(relax.op.repeat(x, block, axis))
        if needed_shape(wide)[axis] != shape[axis]:
            raise UnsupportedFormError("a last block that is smaller than the others is not supported")
        return wide
    if len(given) == rank > 1:
        return x
    if int(np.prod(given)) == 1:
        wanted = [1] * rank
    else:
        axis = axis_of(axis if rank > 1 else 0, rank)
        wanted = [given[0] if i == axis else 1 for i in range(rank)]
        if len(given) != 1 or given[0] != shape[axis]:
            raise UnsupportedFormError(
                f"scales of shape {list(given)} do not fit a tensor of shape {list(shape)}"
            )
    return _reshaped(scope, x, wanted)


def _reshaped(scope: Scope, x: Any, wanted: Sequence[int]) -> Any:
    value = constant(x)
    return scope.emit(relax.op.reshape(x, wanted)) if value is None else const(value.reshape(wanted))


def _as(scope: Scope, x: Any, dtype: str) -> Any:
    if dtype_of(x) == dtype:
        return x
    value = constant(x)
    return scope.emit(relax.op.astype(x, dtype)) if value is None else const(value.astype(dtype))


def _offset(scope: Scope, x: Any, zero: Any, axis: int) -> Any:
    wide = _as(scope, x, "int32")
    if zero is None or _is_zero(zero):
        return wide
    zero = _as(scope, _spread(scope, zero, needed_shape(x), axis, 0), "int32")
    return scope.emit(relax.op.subtract(wide, zero))


CONVERTERS: dict[str, Callable[[Scope, Sequence[Any], dict[str, Any]], Any]] = {
    "ConvInteger": convert_conv_integer,
    "DequantizeLinear": convert_dequantize,
    "QLinearConv": convert_q_conv,
    "QLinearMatMul": convert_q_matmul,
    "QuantizeLinear": convert_quantize,
    "com.microsoft.QGemm": convert_q_gemm,
    "com.microsoft.QLinearAdd": convert_q_binary("Add"),
    "com.microsoft.QLinearAveragePool": convert_q_unary("AveragePool"),
    "com.microsoft.QLinearConcat": convert_q_concat,
    "com.microsoft.QLinearGlobalAveragePool": convert_q_unary("GlobalAveragePool"),
    "com.microsoft.QLinearLeakyRelu": convert_q_unary("LeakyRelu"),
    "com.microsoft.QLinearMul": convert_q_binary("Mul"),
    "com.microsoft.QLinearSigmoid": convert_q_unary("Sigmoid"),
    "com.microsoft.QLinearSoftmax": convert_q_unary("Softmax"),
}
