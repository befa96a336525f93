"""Converters of the operators of ``ai.onnx.ml`` that compute with numbers: what scikit-learn's converters put before a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    full_rank,
    rank_of,
    text,
)

_POST_TRANSFORMS = frozenset({"NONE"})


def convert_array_feature_extractor(
    context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Convert `ArrayFeatureExtractor`: some columns."""
    x, columns = inputs
    columns = context.emit(relax.op.reshape(columns, (-1,)))
    taken = context.emit(relax.op.take(x, columns, axis=rank_of(x) - 1))
    return context.emit(relax.op.expand_dims(taken, 0)) if rank_of(x) == 1 else taken


def convert_binarizer(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Binarizer`: one above a threshold, else zero."""
    x = inputs[0]
    threshold = full_rank(attributes.get("threshold", 0.0), rank_of(x), dtype_of(x))
    return relax.op.astype(context.emit(relax.op.greater(x, threshold)), dtype_of(x))


def convert_linear_regressor(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LinearRegressor`: a product with coefficients, and intercepts."""
    if text(attributes, "post_transform", "NONE") not in _POST_TRANSFORMS:
        raise UnsupportedFormError("post_transform is supported as NONE only")
    targets = attributes.get("targets", 1)
    coefficients = np.array(attributes["coefficients"], np.float32).reshape(targets, -1)
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    y = context.node("MatMul", x, const(np.ascontiguousarray(coefficients.T)))
    intercepts = attributes.get("intercepts")
    if intercepts is None:
        return y
    return relax.op.add(y, const(np.array(intercepts, np.float32).reshape(1, targets)))


def convert_scaler(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Scaler`: ``(x - offset) * scale`` of each column, in float32."""
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    rank = rank_of(x)
    for name, operator in (("offset", relax.op.subtract), ("scale", relax.op.multiply)):
        if name in attributes:
            numbers = np.array(attributes[name], np.float32)
            x = context.emit(operator(x, const(numbers.reshape((1,) * (rank - 1) + (-1,)))))
    return x
