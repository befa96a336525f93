"""Converters of element-wise operators that TVM lacks or computes inexactly: bits, remainders, softplus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx, topi

from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_shape,
    rank_of,
    text,
)

_ATANH_TERMS = 7
"""How many terms of the series of the inverse hyperbolic tangent a third needs in float32."""
_ATANH64_NEAR, _ATANH64_TERMS = 0.2, 13
"""Below this number the series is used in float64, with as many terms."""
_SINH_DIVISORS = (272, 210, 156, 110, 72, 42, 20, 6)
"""What each term of the series of the hyperbolic sine is of the one before, the last one first, without the square."""


def convert_atanh(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Atanh` of float64: near zero by its series, as TVM's logarithm of a number near one has lost its digits."""
    x, dtype = inputs[0], dtype_of(inputs[0])
    if dtype != "float64":
        return None  # `vector_math`
    near = context.emit(relax.op.multiply(x, _atanh_series(context, x, _ATANH64_TERMS, 1.0)))
    size = context.emit(relax.op.abs(x))
    is_near = context.emit(relax.op.less(size, full_rank(_ATANH64_NEAR, rank_of(x), dtype)))
    return relax.op.where(is_near, near, context.emit(relax.op.atanh(x)))


def convert_bit_cast(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `BitCast`: the same bits as another dtype of equal width."""
    x = inputs[0]
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))
    before = dtype_of(x)
    if before == dtype:
        return x
    if "bool" in (before, dtype):
        raise UnsupportedFormError("a cast from or to bits of booleans is not supported")
    if np.dtype(before).itemsize != np.dtype(dtype).itemsize:
        raise UnsupportedFormError(f"{before} and {dtype} differ in width")

    def bits(a: Any) -> Any:
        return te.compute(a.shape, lambda *i: tirx.reinterpret(dtype, a[i]), name="bits", tag="elemwise")

    return context.bb.emit_te(bits, x, primfunc_name_hint="bit_cast")


def convert_bit_shift(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `BitShift`. A count that is negative or too large shifts everything out; the machine's instructions do not.

    To the right, a negative number's sign is what is left.
    """
    x, count = inputs
    if constant_value(x) is not None and constant_value(count) is not None:
        return None
    dtype = dtype_of(x)
    signed, width = dtype.startswith("int"), np.dtype(dtype).itemsize * 8
    to_left = text(attributes, "direction", "LEFT") == "LEFT"
    shape = np.broadcast_shapes(needed_shape(x), needed_shape(count))

    def shift(a: Any, b: Any) -> Any:
        a, b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)

        def element(*i: Any) -> Any:
            value, by = a[i], b[i]
            zero, last = tirx.const(0, dtype), tirx.const(width - 1, dtype)
            inside = by <= last
            if signed:
                inside = tirx.all(inside, by >= zero)
            safe = tirx.Select(inside, by, last)
            if to_left:
                return tirx.Select(inside, value << safe, zero)
            return value >> safe if signed else tirx.Select(inside, value >> safe, zero)

        return te.compute(shape, element, name="shift", tag="elemwise")

    return context.bb.emit_te(shift, x, count, primfunc_name_hint="bit_shift")


def convert_comparison(operator: str) -> Converter:
    """Return a converter of comparisons of booleans, and with the smallest int32, which TVM 0.27 takes for less than every scalar constant.

    It writes a constant without dimensions into the kernel, and folds ``x == -2**31`` to false. One with dimensions is a tensor. Booleans that
    a kernel computes, LLVM is asked to compare as floats, which it refuses.
    """
    compare = getattr(relax.op, operator)

    def convert(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
        if dtype_of(inputs[0]) == "bool":
            return compare(*(context.emit(relax.op.astype(x, "int8")) for x in inputs))
        known = [constant_value(operand) for operand in inputs]
        if not any(value is not None and _is_smallest_int32(value) for value in known):
            return None
        if all(value is not None for value in known):
            return None  # folded
        operands = [
            x if value is None else const(np.atleast_1d(value))
            for x, value in zip(inputs, known, strict=True)
        ]
        if any(rank_of(x) for x in inputs):
            return compare(*operands)
        operands = [context.emit(relax.op.reshape(operand, (1,))) for operand in operands]
        return relax.op.reshape(context.emit(compare(*operands)), ())

    return convert


def _is_smallest_int32(value: Any) -> bool:
    return value.ndim == 0 and value.dtype == np.int32 and int(value) == np.iinfo(np.int32).min


def convert_div(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Div` of integers by divisors that may be 0 or -1: as NumPy, the quotient is 0, or wraps around.

    A CPU ends the process that divides by zero, or the smallest number by -1.
    """
    divisor = _guarded_divisor(context, *inputs)
    if divisor is None:
        return None
    zero = full_rank(0, rank_of(divisor), dtype_of(divisor))
    quotient = context.emit(relax.op.divide(inputs[0], divisor))
    return relax.op.where(context.emit(relax.op.equal(inputs[1], zero)), zero, quotient)


def convert_mish(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Mish`: ``x * tanh(softplus(x))``."""
    x = inputs[0]
    soft = context.node("Softplus", x)
    return relax.op.multiply(x, context.emit(relax.op.tanh(soft)))


def convert_mod(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Mod` of floats whose result has the divisor's sign, of which TVM makes NaN where an infinity is involved.

    Of integers, the remainder by 0 is 0; a CPU ends the process that computes it, or that of the smallest number by -1.
    """
    x, divisor = inputs
    guarded = _guarded_divisor(context, x, divisor)
    if guarded is not None:
        return (relax.op.mod if attributes.get("fmod", 0) else relax.op.floor_mod)(x, guarded)
    if attributes.get("fmod", 0) or not dtype_of(x).startswith("float"):
        return None
    if constant_value(x) is not None and constant_value(divisor) is not None:
        return None
    rest = context.emit(relax.op.mod(x, divisor))
    rank, dtype = rank_of(rest), dtype_of(rest)
    zero = full_rank(0, rank, dtype)
    below, negative = (context.emit(relax.op.less(operand, zero)) for operand in (rest, divisor))
    is_other_sign = context.emit(relax.op.logical_xor(below, negative))
    is_some = context.emit(relax.op.not_equal(rest, zero))
    moved = context.emit(relax.op.add(rest, divisor))
    return relax.op.where(context.emit(relax.op.logical_and(is_other_sign, is_some)), moved, rest)


def convert_sinh(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Sinh`: below 1 by its series, as TVM's difference of two numbers near one has lost its digits."""
    x, dtype = inputs[0], dtype_of(inputs[0])
    if dtype not in ("float32", "float64"):
        wide = context.emit(relax.op.astype(x, "float32"))
        return relax.op.astype(context.emit(convert_sinh(context, [wide], {})), dtype)

    def number(value: float) -> Any:
        return full_rank(value, rank_of(x), dtype)

    square = context.emit(relax.op.multiply(x, x))
    series = number(1)
    for divisor in _SINH_DIVISORS:
        term = context.emit(
            relax.op.multiply(context.emit(relax.op.multiply(square, series)), number(1 / divisor))
        )
        series = context.emit(relax.op.add(term, number(1)))
    near = context.emit(relax.op.multiply(x, series))
    is_near = context.emit(relax.op.less(square, number(1)))
    return relax.op.where(is_near, near, context.emit(relax.op.sinh(x)))


def convert_softplus(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Softplus`: ``max(x, 0) + log(1 + exp(-|x|))``; TVM's sum of one and a small number has lost its digits.

    The logarithm is ``2 * atanh(y / (2 + y))``, by the series; the argument is a third at most.
    """
    x, dtype = inputs[0], dtype_of(inputs[0])
    if dtype == "float64":
        return None
    if dtype != "float32":
        wide = context.emit(relax.op.astype(x, "float32"))
        return relax.op.astype(context.emit(convert_softplus(context, [wide], {})), dtype)

    def number(value: float) -> Any:
        return full_rank(value, rank_of(x), dtype)

    y = context.emit(relax.op.exp(context.emit(relax.op.negative(context.emit(relax.op.abs(x))))))
    ratio = context.emit(relax.op.divide(y, context.emit(relax.op.add(y, number(2)))))
    log = context.emit(relax.op.multiply(ratio, _atanh_series(context, ratio, _ATANH_TERMS, 2.0)))
    return relax.op.add(context.emit(relax.op.maximum(x, number(0))), log)


def convert_tensor_scatter(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `TensorScatter`: a cache into which an update is written, for each sequence from an index of its own."""
    past, update = inputs[:2]
    shape, length_axis = needed_shape(past), attributes.get("axis", -2)
    axis = length_axis % len(shape)
    size, count = shape[axis], needed_shape(update)[axis]
    starts = inputs[2] if len(inputs) > 2 else None
    if starts is None:
        starts = const(np.zeros(shape[0], np.int64))
    circular = text(attributes, "mode", "linear") == "circular"

    def scatter(old: Any, new: Any, first: Any) -> Any:
        def element(*i: Any) -> Any:
            offset = i[axis].astype("int64") - first[i[0]].astype("int64")
            if circular:
                offset = tirx.floormod(offset, tirx.const(size, "int64"))
            inside = tirx.all(offset >= 0, offset < count)
            there = (*i[:axis], tirx.max(tirx.min(offset, count - 1), 0), *i[axis + 1 :])
            return tirx.Select(inside, new[there], old[i])

        return te.compute(shape, element, name="scatter", tag="injective")

    return context.bb.emit_te(scatter, past, update, starts, primfunc_name_hint="tensor_scatter")


def _atanh_series(context: NodeContext, x: Any, terms: int, factor: float) -> Any:
    """Return the series of the inverse hyperbolic tangent of x divided by x, times a factor."""
    rank, dtype = rank_of(x), dtype_of(x)
    square = context.emit(relax.op.multiply(x, x))
    series = full_rank(factor / (2 * terms - 1), rank, dtype)
    for term in reversed(range(terms - 1)):
        series = context.emit(relax.op.multiply(series, square))
        series = context.emit(relax.op.add(series, full_rank(factor / (2 * term + 1), rank, dtype)))
    return series


def _guarded_divisor(context: NodeContext, x: Any, divisor: Any) -> Any:
    """Return integer divisors, 1 in place of 0, and of -1 below the smallest number. Return None if they need no change."""
    if not all(isinstance(operand.ty, relax.TensorType) and operand.ty.ndim >= 0 for operand in (x, divisor)):
        return None  # a size, which TVM's converter divides
    dtype = dtype_of(divisor)
    if "int" not in dtype:
        return None
    known = constant_value(divisor)
    if known is not None and (constant_value(x) is not None or not np.isin(known, (0, -1)).any()):
        return None

    def compared(compare: Any, operand: Any, value: int) -> Any:
        return context.emit(compare(operand, full_rank(value, rank_of(operand), dtype)))

    fails = compared(relax.op.equal, divisor, 0)
    if smallest := int(np.iinfo(dtype).min):
        # TVM 0.27 folds `x == smallest` of a scalar of int32 to false.
        is_smallest = compared(relax.op.less, x, smallest + 1)
        overflows = relax.op.logical_and(compared(relax.op.equal, divisor, -1), is_smallest)
        fails = context.emit(relax.op.logical_or(fails, context.emit(overflows)))
    return context.emit(relax.op.where(fails, full_rank(1, rank_of(divisor), dtype), divisor))
