"""Converters of quantised operators. By ONNX's definition they scale inputs to floats, compute, and round the results.

They emit plain arithmetic with constants of full rank: TVM's `quantize` and `dequantize` have no layout rules, so a quantised network
would transpose around each of them. Results differ from ONNX Runtime's by one quantisation step at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.symbolic import is_int
from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    constant_value,
    dtype_of,
    fixed_shape,
    full_rank,
    needed_open_shape,
    needed_shape,
    rank_of,
)


def dequantize(context: NodeContext, q: Any, scale: Any, zero: Any, *, axis: int = 1, block: int = 0) -> Any:
    """Return ``(q - zero) * scale``."""
    shape = needed_open_shape(q)
    out = dtype_of(scale)
    exact = dtype_of(q) in ("int32", "uint32", "int64") and zero is not None
    x = q if exact else context.emit(relax.op.astype(q, out))
    if zero is not None and not _is_zero(zero):
        wide = _spread(context, zero, shape, axis, block)
        wide = context.emit(relax.op.astype(wide, dtype_of(x))) if dtype_of(wide) != dtype_of(x) else wide
        x = context.emit(relax.op.subtract(x, wide))
    if dtype_of(x) != out:
        x = context.emit(relax.op.astype(x, out))
    return context.emit(relax.op.multiply(x, _spread(context, scale, shape, axis, block)))


def quantize(
    context: NodeContext, x: Any, scale: Any, zero: Any, *, dtype: str, axis: int = 1, block: int = 0
) -> Any:
    """Return ``x / scale + zero``, rounded to the nearest (ties to even) and clamped to the range of the dtype.

    By a constant scale it is a product, as a division takes as long as a dozen: where the quotient is within its last digit of a
    tie, the result may be the next step.
    """
    shape = needed_open_shape(x)
    rank, inner = len(shape), dtype_of(x)
    reciprocal = _reciprocal(scale) if inner == "float32" else None
    by, factor = (relax.op.divide, scale) if reciprocal is None else (relax.op.multiply, reciprocal)
    q = context.emit(by(x, _as(context, _spread(context, factor, shape, axis, block), inner)))
    q = context.emit(relax.op.round(q))
    if zero is not None and not _is_zero(zero):
        q = context.emit(relax.op.add(q, _as(context, _spread(context, zero, shape, axis, block), inner)))
    limits = np.iinfo(dtype)
    q = context.emit(relax.op.maximum(q, full_rank(limits.min, rank, inner)))
    q = context.emit(relax.op.minimum(q, full_rank(limits.max, rank, inner)))
    return context.emit(relax.op.astype(q, dtype))


def _reciprocal(scale: Any) -> Any | None:
    """Return the reciprocals of constant scales; None if the scales are computed, or a reciprocal has fewer digits."""
    if not isinstance(scale, tvm.ir.GenericConst) or dtype_of(scale) != "float32":
        return None
    with np.errstate(all="ignore"):
        reciprocals = np.float32(1) / scale.value.numpy()
    has_all_digits = np.isfinite(reciprocals) & (np.abs(reciprocals) >= np.finfo(np.float32).tiny)
    return relax.const(reciprocals, "float32") if has_all_digits.all() else None


def convert_dequantize(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `DequantizeLinear`."""
    q, scale, zero = _three(inputs)
    floats = dequantize(
        context, q, scale, zero, axis=attributes.get("axis", 1), block=attributes.get("block_size", 0)
    )
    element = attributes.get("output_dtype")
    return _as(context, floats, str(onnx.helper.tensor_dtype_to_np_dtype(element))) if element else floats


def convert_quantize(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QuantizeLinear`."""
    x, scale, zero = _three(inputs)
    element = attributes.get("output_dtype")
    if zero is not None:
        dtype = dtype_of(zero)
    else:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(element)) if element else "uint8"
    if attributes.get("precision"):
        raise UnsupportedFormError("another precision than the input's is not supported")
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    return quantize(context, x, scale, zero, dtype=dtype, axis=axis, block=block)


def convert_q_conv(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QLinearConv`."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    arguments = [dequantize(context, x, x_scale, x_zero), dequantize(context, w, w_scale, w_zero, axis=0)]
    if len(inputs) > 8 and inputs[8] is not None:
        scale = context.emit(relax.op.multiply(x_scale, w_scale))
        arguments.append(dequantize(context, inputs[8], scale, None, axis=0))
    y = context.node("Conv", *arguments, **attributes)
    return quantize(context, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def convert_q_matmul(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `QLinearMatMul`: the first matrix may have a scale per row, the second one per column."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
    # the product of two scales of float16 has lost the digits that decide how results round
    a_scale, b_scale, y_scale = (_as(context, scale, "float32") for scale in (a_scale, b_scale, y_scale))
    left = dequantize(context, a, a_scale, a_zero, axis=rank_of(a) - 2)
    right = dequantize(context, b, b_scale, b_zero, axis=rank_of(b) - 1)
    y = context.node("MatMul", left, right)
    return quantize(context, y, y_scale, y_zero, dtype=dtype_of(y_zero), axis=rank_of(y) - 2)


def convert_conv_integer(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ConvInteger`, in 32-bit integers."""
    x, w = inputs[0], inputs[1]
    zeros = [inputs[i] if len(inputs) > i else None for i in (2, 3)]
    return context.node(
        "Conv", _offset(context, x, zeros[0], 1), _offset(context, w, zeros[1], 0), **attributes
    )


def convert_q_gemm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert ONNX Runtime's `QGemm`, whose result is floats if it has no output scale."""
    a, a_scale, a_zero, b, b_scale, b_zero = inputs[:6]
    c, y_scale, y_zero = [inputs[i] if len(inputs) > i else None for i in (6, 7, 8)]
    columns = 0 if attributes.get("transB", 0) else 1
    arguments = [
        dequantize(context, a, a_scale, a_zero),
        dequantize(context, b, b_scale, b_zero, axis=columns),
    ]
    alpha = float(attributes.get("alpha", 1.0))
    if c is not None:
        scale = context.emit(relax.op.multiply(a_scale, b_scale))
        scale = context.emit(relax.op.multiply(scale, const(np.array([alpha], np.float32))))
        arguments.append(dequantize(context, c, scale, None, axis=rank_of(c) - 1))
    y = context.node("Gemm", *arguments, **attributes)
    return y if y_scale is None else quantize(context, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def convert_q_binary(operator: str) -> Converter:
    """Return the converter of ONNX Runtime's `QLinearAdd` or `QLinearMul`."""

    def convert(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = [*inputs, None][:8]
        y = context.node(
            operator, dequantize(context, a, a_scale, a_zero), dequantize(context, b, b_scale, b_zero)
        )
        return quantize(context, y, y_scale, y_zero, dtype=dtype_of(a))

    return convert


def convert_q_unary(operator: str) -> Converter:
    """Return the converter of one of ONNX Runtime's quantised operators on one tensor."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        x, x_scale, x_zero, y_scale, y_zero = [*inputs, None][:5]
        others = dict(attributes)
        floats = dequantize(context, x, x_scale, x_zero)
        if others.pop("channels_last", 0):
            y = _channels_last(context, floats, operator, others)
        else:
            y = context.node(operator, floats, **others)
        return quantize(context, y, y_scale, y_zero, dtype=dtype_of(x))

    return convert


def convert_channels_last(operator: str) -> Converter:
    """Return the converter of an operator of ONNX Runtime that equals one of ONNX but for the place of the channels."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        others = dict(attributes)
        if not others.pop("channels_last", operator != "QLinearConv"):
            return context.node(operator, *inputs, **others)
        return _channels_last(context, inputs[0], operator, others, inputs[1:])

    return convert


def convert_q_where(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert ONNX Runtime's `QLinearWhere`."""
    chosen, *operands = inputs
    parts = [dequantize(context, *operands[i : i + 3]) for i in (0, 3)]
    y_scale, y_zero = operands[6:8]
    return quantize(context, context.node("Where", chosen, *parts), y_scale, y_zero, dtype=dtype_of(y_zero))


def _channels_last(
    context: NodeContext, x: Any, operator: str, attributes: dict[str, Any], others: Sequence[Any] = ()
) -> Any:
    """Apply an operator whose channels are the second dimension to a tensor where they are the last one."""
    rank = rank_of(x)
    first = context.node("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = context.node(operator, first, *others, **attributes)
    return context.node("Transpose", y, perm=[0, *range(2, rank), 1])


def convert_dynamic_quantize_linear(
    context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Convert `DynamicQuantizeLinear`; TVM's converter divides zeros by zero."""
    x = inputs[0]
    if fixed_shape(x) is None:
        return None
    zero, unit, last = (const(np.array(value, dtype_of(x))) for value in (0, 1, 255))
    low = context.emit(relax.op.minimum(context.emit(relax.op.min(x)), zero))
    width = context.emit(
        relax.op.subtract(context.emit(relax.op.maximum(context.emit(relax.op.max(x)), zero)), low)
    )
    step = context.emit(relax.op.divide(width, last))
    scale = context.emit(relax.op.where(context.emit(relax.op.greater(width, zero)), step, unit))
    middle = context.emit(
        relax.op.round(context.emit(relax.op.negative(context.emit(relax.op.divide(low, scale)))))
    )
    zero_point = context.emit(relax.op.astype(context.emit(relax.op.minimum(middle, last)), "uint8"))
    return relax.Tuple([quantize(context, x, scale, zero_point, dtype="uint8"), scale, zero_point])


def convert_q_concat(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert ONNX Runtime's `QLinearConcat`."""
    y_scale, y_zero, *operands = inputs
    parts = [dequantize(context, *operands[i : i + 3]) for i in range(0, len(operands), 3)]
    y = context.node("Concat", *parts, **attributes)
    return quantize(context, y, y_scale, y_zero, dtype=dtype_of(y_zero))


def _three(inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
    return inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None


def _is_zero(zero: Any) -> bool:
    value = constant_value(zero)
    return value is not None and not value.any()


def _spread(context: NodeContext, x: Any, shape: Sequence[Any], axis: int, block: int) -> Any:
    """Return a scale or zero point (per tensor, per axis or per block) in a shape that broadcasts over a tensor."""
    own_shape, rank = needed_shape(x), len(shape)
    if block:
        axis = axis_of(axis, rank)
        wide = context.emit(relax.op.repeat(x, block, axis))
        if not is_int(shape[axis], needed_shape(wide)[axis]):
            raise UnsupportedFormError("a last block that is smaller than the others is not supported")
        return wide
    if len(own_shape) == rank > 1:
        return x
    if int(np.prod(own_shape)) == 1:
        new_shape = [1] * rank
    else:
        axis = axis_of(axis if rank > 1 else 0, rank)
        new_shape = [own_shape[0] if i == axis else 1 for i in range(rank)]
        if len(own_shape) != 1 or not is_int(shape[axis], own_shape[0]):
            raise UnsupportedFormError(
                f"scales of shape {list(own_shape)} do not fit a tensor of shape {list(shape)}"
            )
    return _reshaped(context, x, new_shape)


def _reshaped(context: NodeContext, x: Any, new_shape: Sequence[int]) -> Any:
    value = constant_value(x)
    return context.emit(relax.op.reshape(x, new_shape)) if value is None else const(value.reshape(new_shape))


def _as(context: NodeContext, x: Any, dtype: str) -> Any:
    if dtype_of(x) == dtype:
        return x
    value = constant_value(x)
    return context.emit(relax.op.astype(x, dtype)) if value is None else const(value.astype(dtype))


def _offset(context: NodeContext, x: Any, zero: Any, axis: int) -> Any:
    wide = _as(context, x, "int32")
    if zero is None or _is_zero(zero):
        return wide
    zero = _as(context, _spread(context, zero, needed_open_shape(x), axis, 0), "int32")
    return context.emit(relax.op.subtract(wide, zero))
