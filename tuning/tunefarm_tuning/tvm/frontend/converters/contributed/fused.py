"""Converters of the operators that ONNX Runtime's optimiser and quantiser write into files: several of ONNX's in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import inside_float32, scalar
from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    dtype_of,
    rank_of,
    text,
)

_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""ONNX's operators by the names of their attributes, in the order of ``activation_params``."""
_QUICK = 1.702


def convert_fused_matmul(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `FusedMatMul`: a product of matrices, each perhaps transposed, and scaled."""
    operands = [
        _transposed(context, x, attributes.get(f"transBatch{side}", 0), attributes.get(f"trans{side}", 0))
        for x, side in zip(inputs[:2], "AB", strict=True)
    ]
    product = context.node("MatMul", *operands)
    alpha = float(attributes.get("alpha", 1.0))
    return product if alpha == 1.0 else context.node("Mul", product, scalar(alpha, product))


def convert_fused_conv(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `FusedConv`: a convolution, a sum and an activation."""
    x, weights, bias, added = [*inputs, None, None][:4]
    others = dict(attributes)
    activation, params = _activation(others), list(others.pop("activation_params", ()))
    y = context.node("Conv", x, weights, *([] if bias is None else [bias]), **others)
    y = y if added is None else context.node("Add", y, added)
    return _activated(context, y, activation, params)


def convert_fused_gemm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `FusedGemm`: a `Gemm` and an activation."""
    others = dict(attributes)
    activation = _activation(others)
    given = [others.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    params = [value for value in given if value is not None]
    operands = [x for x in inputs if x is not None]
    return _activated(context, context.node("Gemm", *operands, **others), activation, params)


def convert_gelu(operator: str) -> Converter:
    """Return the converter of `BiasGelu` or `FastGelu`: TVM's, which rounds each step of float16, for float32."""
    name = f"com.microsoft.{operator}"

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        return context.convert(name, inputs, attributes, context.opset)

    return inside_float32(convert)


def convert_quick_gelu(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QuickGelu`: ``x * sigmoid(alpha * x)``."""
    x = inputs[0]
    scaled = context.node("Mul", x, scalar(float(attributes.get("alpha", _QUICK)), x))
    return context.node("Mul", x, context.node("Sigmoid", scaled))


def convert_dynamic_quantize_matmul(
    context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Convert `DynamicQuantizeMatMul`: its first operand is rounded to 8 bits by its own range."""
    a, b, b_scale, b_zero, bias = [*inputs, None, None][:5]
    parts = context.convert("DynamicQuantizeLinear", [a], {}, context.opset)
    integers, scale, zero = (context.emit(part) for part in parts)
    return _product_of_integers(context, (integers, b), (scale, b_scale), (zero, b_zero), bias)


def convert_matmul_integer_to_float(
    context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Convert `MatMulIntegerToFloat`: a product of 8-bit integers, scaled."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = [*inputs, None, None, None][:7]
    return _product_of_integers(context, (a, b), (a_scale, b_scale), (a_zero, b_zero), bias)


def _product_of_integers(
    context: NodeContext, operands: Sequence[Any], scales: Sequence[Any], zeros: Sequence[Any], bias: Any
) -> Any:
    product = context.node("MatMulInteger", *operands, *zeros)
    floats = context.emit(relax.op.astype(product, dtype_of(scales[0])))
    y = context.node("Mul", floats, context.node("Mul", *scales))
    return y if bias is None else context.node("Add", y, bias)


def _transposed(context: NodeContext, x: Any, batches: int, rows: int) -> Any:
    """Return a tensor with its first dimension behind the other batches, if `batches`, and its last two swapped, if `rows`."""
    axes = list(range(rank_of(x)))
    if batches and len(axes) > 2:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if rows and len(axes) > 1:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return x if axes == sorted(axes) else context.node("Transpose", x, perm=axes)


def _activation(attributes: dict[str, Any]) -> str:
    activation = text(attributes, "activation", "")
    attributes.pop("activation", None)
    if activation and activation not in _ACTIVATIONS:
        raise UnsupportedFormError(f"its activation {activation} is not supported")
    return activation


def _activated(context: NodeContext, y: Any, activation: str, params: Sequence[float]) -> Any:
    if not activation:
        return y
    if activation == "Clip":
        low, high = [*params, -np.inf, np.inf][:2] if len(params) != 1 else (params[0], np.inf)
        return context.node("Min", context.node("Max", y, scalar(low, y)), scalar(high, y))
    named = dict(zip(_ACTIVATIONS[activation], map(float, params), strict=False))
    return context.node(activation, y, **named)
