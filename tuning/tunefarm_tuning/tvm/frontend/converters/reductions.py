"""Converters of reductions, of running products, and of determinants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    axis_of,
    constant_value,
    dtype_of,
    full_rank,
    needed_constant,
    needed_shape,
    rank_of,
)
from tunefarm_tuning.tvm.kernels.layers.determinant import determinant_kernel


def convert_cum_prod(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `CumProd`."""
    x = inputs[0]
    axis = axis_of(int(needed_constant(inputs[1], "axis").reshape(-1)[0]), rank_of(x))
    reverse = bool(attributes.get("reverse", 0))
    if reverse:
        x = context.emit(relax.op.flip(x, axis))
    product = relax.op.cumprod(x, axis, exclusive=bool(attributes.get("exclusive", 0)))
    return relax.op.flip(context.emit(product), axis) if reverse else product


def convert_det(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Det`."""
    shape, dtype = needed_shape(inputs[0]), dtype_of(inputs[0])
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise UnsupportedFormError(f"a tensor of shape {list(shape)} has no square matrices")
    count = int(np.prod(shape[:-2]))
    matrices = context.emit(relax.op.reshape(inputs[0], (count, *shape[-2:])))
    kernel = context.bb.add_func(determinant_kernel(count, shape[-1], dtype), "det")
    result = relax.call_tir(kernel, [matrices], out_ty=relax.TensorType((count,), dtype))
    return relax.op.reshape(context.emit(result), shape[:-2])


def convert_extremum(operator: str) -> Converter:
    """Return the converter of `ReduceMax` or `ReduceMin` of booleans and floats.

    TVM has no kernel for booleans. Its kernels for floats begin with the last finite number, which is wrong for a row of nothing but
    infinities. So they work on halves: doubled, the last finite number is an infinity, if no element is in its place.
    """

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        dtype = dtype_of(inputs[0])
        if dtype == "bool":
            x = context.emit(relax.op.astype(inputs[0], "int8"))
        elif dtype == "float16":
            x = context.emit(relax.op.astype(inputs[0], "float32"))
        elif dtype in ("float32", "float64") and constant_value(inputs[0]) is None:
            half = full_rank(0.5, rank_of(inputs[0]), dtype)
            x = context.emit(relax.op.multiply(inputs[0], half))
        else:
            return None
        reduced = context.convert(operator, [x, *inputs[1:]], attributes, context.opset)
        reduced = context.emit(reduced)
        if dtype_of(reduced) != dtype:
            return relax.op.astype(reduced, dtype)
        double = full_rank(2, rank_of(reduced), dtype)
        return relax.op.multiply(reduced, double)

    return convert


def convert_log_sum_exp(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ReduceLogSumExp`; TVM's converter subtracts infinity from infinity."""
    x = inputs[0]
    dtype = dtype_of(x)
    if not dtype.startswith("float"):
        return None
    rank = rank_of(x)
    axes = attributes.get("axes")
    if context.opset >= 18:
        axes_input = inputs[1] if len(inputs) > 1 else None
        axes = None if axes_input is None else needed_constant(axes_input, "axes").reshape(-1).tolist()
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return x
    reduced = [axis_of(int(axis), rank) for axis in axes] if axes else list(range(rank))
    largest, lowest = (full_rank(limit, rank, dtype) for limit in (np.finfo(dtype).max, np.finfo(dtype).min))
    top = context.emit(relax.op.max(x, reduced, keepdims=True))
    top = context.emit(relax.op.minimum(context.emit(relax.op.maximum(top, lowest)), largest))
    powers = context.emit(relax.op.exp(context.emit(relax.op.subtract(x, top))))
    total = context.emit(relax.op.sum(powers, reduced, keepdims=True))
    result = context.emit(relax.op.add(context.emit(relax.op.log(total)), top))
    return result if attributes.get("keepdims", 1) else relax.op.squeeze(result, reduced)


def convert_index(operator: str) -> Converter:
    """Return the converter of `ArgMax` or `ArgMin` of floats.

    TVM's kernels begin with the last finite number at the index -1, which they return for a row of nothing but infinities or
    masked elements, and of NaN they return the last. So they work on halves, as `convert_extremum`, and NaN is never chosen.
    """
    never = np.inf if operator == "ArgMin" else -np.inf

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        dtype, rank = dtype_of(inputs[0]), rank_of(inputs[0])
        if dtype not in ("float32", "float64") or constant_value(inputs[0]) is not None:
            return None
        half = context.emit(relax.op.multiply(inputs[0], full_rank(0.5, rank, dtype)))
        is_nan = context.emit(relax.op.isnan(half))
        x = context.emit(relax.op.where(is_nan, full_rank(never, rank, dtype), half))
        index = context.emit(context.convert(operator, [x], attributes, context.opset))
        first = 0
        if attributes.get("select_last_index", 0):
            first = needed_shape(inputs[0])[axis_of(attributes.get("axis", 0), rank)] - 1
        is_none = context.emit(relax.op.less(index, full_rank(0, rank_of(index), "int64")))
        return relax.op.where(is_none, full_rank(first, rank_of(index), "int64"), index)

    return convert
