"""Converters of operators of ONNX Runtime that are ones of ONNX under another name, or a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import scalar
from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    int64s,
    needed_constant,
    needed_shape,
    text,
)


def as_of(operator: str, opset: int) -> Converter:
    """Return the converter of an operator that equals one of ONNX as of an opset."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        return context.convert(operator, inputs, attributes, opset)

    return convert


def convert_expand_dims(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `ExpandDims`."""
    axis = int(needed_constant(inputs[1], "axis").reshape(-1)[0])
    return context.convert("Unsqueeze", [inputs[0], int64s([axis])], {}, 13)


def convert_distances(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `CDist`: distances between the rows of two matrices, by their lengths and products, as ONNX Runtime computes them."""
    a, b = inputs
    lengths = [
        context.convert("ReduceSum", [context.node("Mul", x, x), int64s([1])], {"keepdims": kept}, 13)
        for x, kept in ((a, 1), (b, 0))
    ]
    products = context.node("MatMul", a, context.node("Transpose", b, perm=[1, 0]))
    squares = context.node("Add", *(context.emit(length) for length in lengths))
    squares = context.node("Sub", squares, context.node("Mul", products, scalar(2, products)))
    squares = context.node("Max", squares, scalar(0, squares))
    return (
        squares
        if text(attributes, "metric", "sqeuclidean") == "sqeuclidean"
        else context.node("Sqrt", squares)
    )


def convert_unfold(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `UnfoldTensor`: windows along an axis, whose elements become the last axis."""
    shape = needed_shape(inputs[0])
    axis = axis_of(int(attributes.get("dim", -1)), len(shape))
    size, step = int(attributes["size"]), int(attributes.get("step", 1))
    if not 0 < size <= shape[axis] or step < 1:
        raise UnsupportedFormError(f"windows of {size} with a step of {step} along {shape[axis]} elements")
    starts = np.arange(0, shape[axis] - size + 1, step)
    windows = context.node("Gather", inputs[0], const(starts[:, None] + np.arange(size)), axis=axis)
    order = [number for number in range(len(shape) + 1) if number != axis + 1]
    return context.node("Transpose", windows, perm=[*order, axis + 1])
