"""Converters of normalisations, and of dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_constant,
    needed_shape,
    rank_of,
)


def convert_batch_norm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `BatchNormalization` in training mode, by the batch's own statistics; TVM's converter treats it as inference."""
    if not attributes.get("training_mode", 0):
        return None
    x, scale, bias, mean, variance = inputs
    rank = rank_of(x)
    axes = [axis for axis in range(rank) if axis != 1]
    own = [context.emit(op(x, axes)) for op in (relax.op.mean, relax.op.variance)]
    shape = [-1 if axis == 1 else 1 for axis in range(rank)]
    center, spread, scale, bias = (
        context.emit(relax.op.reshape(vector, shape)) for vector in (*own, scale, bias)
    )
    spread = context.emit(
        relax.op.add(spread, full_rank(attributes.get("epsilon", 1e-5), rank, dtype_of(spread)))
    )
    normed = context.emit(relax.op.subtract(x, center))
    normed = context.emit(relax.op.multiply(normed, context.emit(relax.op.rsqrt(spread))))
    normed = context.emit(relax.op.add(context.emit(relax.op.multiply(normed, scale)), bias))
    if context.outputs < 2:
        return normed
    momentum = attributes.get("momentum", 0.9)
    running = []
    for before, now in zip((mean, variance), own, strict=True):
        dtype = dtype_of(before)
        kept = context.emit(relax.op.multiply(before, full_rank(momentum, 1, dtype)))
        share = context.emit(relax.op.multiply(now, full_rank(1 - momentum, 1, dtype)))
        running.append(context.emit(relax.op.add(kept, share)))
    return relax.Tuple([normed, *running])


def convert_dropout(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Dropout`, which does nothing at inference; TVM's converter makes a mask of floats."""
    ratio, training = [*inputs[1:], None, None][:2]
    drops = ratio is None or constant_value(ratio) is None or bool(constant_value(ratio))
    if training is not None and drops and bool(needed_constant(training, "training_mode")):
        raise UnsupportedFormError("it is in training mode, where results are random")
    if context.outputs < 2:
        return inputs[0]
    dtype = "bool" if context.opset >= 10 else dtype_of(inputs[0])
    return relax.Tuple([inputs[0], const(np.ones(needed_shape(inputs[0]), dtype=dtype))])


def convert_layer_norm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LayerNormalization` with its statistics, which are zeros in TVM's converter, and in float64."""
    x = inputs[0]
    is_double = dtype_of(x) == "float64"  # for which TVM has no kernel
    if context.outputs < 2 and not is_double:
        return None
    rank = rank_of(x)
    axes = list(range(axis_of(attributes.get("axis", -1), rank), rank))
    wide = x if dtype_of(x) in ("float32", "float64") else context.emit(relax.op.astype(x, "float32"))
    mean = context.emit(relax.op.mean(wide, axes, keepdims=True))
    variance = context.emit(relax.op.variance(wide, axes, keepdims=True))
    epsilon = full_rank(attributes.get("epsilon", 1e-5), rank, dtype_of(wide))
    inverse = context.emit(relax.op.rsqrt(context.emit(relax.op.add(variance, epsilon))))
    if is_double:
        normed = context.emit(relax.op.multiply(context.emit(relax.op.subtract(x, mean)), inverse))
        for number, step in ((1, relax.op.multiply), (2, relax.op.add)):
            if len(inputs) > number and inputs[number] is not None:
                normed = context.emit(step(normed, inputs[number]))
    else:
        normed = context.convert("LayerNormalization", inputs, attributes, context.opset).fields[0]
    return relax.Tuple([normed, mean, inverse]) if context.outputs > 1 else normed


def convert_lp_norm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LpNormalization`, which TVM lacks. The result of zeros is zeros."""
    x = inputs[0]
    rank, dtype = rank_of(x), dtype_of(x)
    axis = axis_of(attributes.get("axis", -1), rank)
    if attributes.get("p", 2) == 1:
        norm = context.emit(relax.op.sum(context.emit(relax.op.abs(x)), axis, keepdims=True))
    else:
        squares = context.emit(relax.op.sum(context.emit(relax.op.multiply(x, x)), axis, keepdims=True))
        norm = context.emit(relax.op.sqrt(squares))
    least = full_rank(np.finfo(dtype).tiny, rank, dtype)
    return relax.op.divide(x, context.emit(relax.op.maximum(norm, least)))


def convert_rms_norm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `RMSNormalization` over all axes: TVM's kernel needs one that is not normalised."""
    if axis_of(attributes.get("axis", -1), rank_of(inputs[0])) > 0:
        return None
    shape = needed_shape(inputs[0])
    x = context.emit(relax.op.expand_dims(inputs[0], 0))
    from_second = {**attributes, "axis": 1}
    y = context.convert("RMSNormalization", [x, inputs[1]], from_second, context.opset)
    return relax.op.reshape(context.emit(y), shape)
