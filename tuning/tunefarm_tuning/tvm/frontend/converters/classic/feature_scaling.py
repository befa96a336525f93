"""Converters of the operators of ``ai.onnx.ml`` that compute with numbers: what scikit-learn's converters put before a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_open_shape,
    rank_of,
    text,
)

_ZERO_SCORE = 1e-7
"""Scores up to this one are zeros for a ``SOFTMAX_ZERO``."""


def convert_array_feature_extractor(
    context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Convert `ArrayFeatureExtractor`: some columns."""
    x, columns = inputs
    numbers = constant_value(columns)  # computing with a constant in the graph would cost a kernel
    columns = (
        context.emit(relax.op.reshape(columns, (-1,))) if numbers is None else const(numbers.reshape(-1))
    )
    taken = context.emit(relax.op.take(x, columns, axis=rank_of(x) - 1))
    return context.emit(relax.op.expand_dims(taken, 0)) if rank_of(x) == 1 else taken


def convert_binarizer(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Binarizer`: one above a threshold, else zero."""
    x = inputs[0]
    threshold = full_rank(attributes.get("threshold", 0.0), rank_of(x), dtype_of(x))
    return relax.op.astype(context.emit(relax.op.greater(x, threshold)), dtype_of(x))


def convert_imputer(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Imputer` of floats: each column's number in place of what is missing."""
    if "imputed_value_floats" not in attributes:
        raise UnsupportedFormError("integers are not supported, floats are")
    x = inputs[0]
    numbers = np.array(attributes["imputed_value_floats"], np.float32)
    missing = float(attributes.get("replaced_value_float", 0.0))
    is_missing = (
        relax.op.isnan(x)
        if np.isnan(missing)
        else relax.op.equal(x, full_rank(missing, rank_of(x), "float32"))
    )
    filled = const(numbers.reshape((1,) * (rank_of(x) - 1) + (-1,)))
    return relax.op.where(context.emit(is_missing), filled, x)


def convert_linear_classifier(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LinearClassifier` of a score for each class, whose labels are integers: the likeliest class, and the scores."""
    labels = class_labels(attributes, "classlabels_ints")
    coefficients = np.array(attributes["coefficients"], np.float32)
    intercepts = np.array(attributes.get("intercepts", np.zeros(len(labels))), np.float32)
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    columns = needed_open_shape(x)[-1]
    if not isinstance(columns, int):
        raise UnsupportedFormError("the number of its columns must be fixed")
    if rank_of(x) != 2 or len(coefficients) != len(labels) * columns or len(intercepts) != len(labels):
        raise UnsupportedFormError(f"it has {len(coefficients)} coefficients for {len(labels)} classes")
    product = context.node("MatMul", x, const(np.ascontiguousarray(coefficients.reshape(len(labels), -1).T)))
    scores = context.emit(relax.op.add(product, const(intercepts.reshape(1, -1))))
    chosen = context.emit(relax.op.argmax(scores, axis=1))
    label = context.emit(relax.op.take(const(labels), chosen, axis=0))
    return relax.Tuple(
        [label, transformed_scores(context, scores, text(attributes, "post_transform", "NONE"))]
    )


def convert_normalizer(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Normalizer`: rows divided by their norm; a row of zeros stays."""
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    norm = text(attributes, "norm", "MAX")
    if norm == "L1":
        length = relax.op.sum(context.emit(relax.op.abs(x)), axis=-1, keepdims=True)
    elif norm == "L2":
        length = relax.op.sqrt(
            context.emit(relax.op.sum(context.emit(relax.op.multiply(x, x)), axis=-1, keepdims=True))
        )
    else:
        length = relax.op.max(x, axis=-1, keepdims=True)
    length, rank = context.emit(length), rank_of(x)
    is_zero = context.emit(relax.op.equal(length, full_rank(0, rank, "float32")))
    return relax.op.divide(x, context.emit(relax.op.where(is_zero, full_rank(1, rank, "float32"), length)))


def convert_linear_regressor(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LinearRegressor`: a product with coefficients, and intercepts."""
    if text(attributes, "post_transform", "NONE") != "NONE":
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


def class_labels(attributes: Mapping[str, Any], name: str) -> NDArray[np.int64]:
    """Return the labels of a classifier's classes."""
    labels = np.array(attributes.get(name, ()), np.int64)
    if len(labels) < 2:
        raise UnsupportedFormError("its labels must be two or more integers; strings are not supported")
    return labels


def transformed_scores(context: NodeContext, scores: Any, transform: str) -> Any:
    """Return scores after a ``post_transform``, as ONNX Runtime computes it."""
    transforms: Mapping[str, Any] = {
        "NONE": lambda _, x: x,
        "LOGISTIC": lambda _, x: relax.op.sigmoid(x),
        "SOFTMAX": lambda _, x: relax.op.nn.softmax(x, axis=1),
        "SOFTMAX_ZERO": _softmax_zero,
        "PROBIT": _probit,
    }
    if transform not in transforms:
        raise UnsupportedFormError(f"post_transform {transform} is not known")
    return context.emit(transforms[transform](context, scores))


def _softmax_zero(context: NodeContext, x: Any) -> Any:
    """Return a softmax among the scores that are not zero; zeros stay."""
    dtype = dtype_of(x)
    largest = context.emit(relax.op.max(x, axis=1, keepdims=True))
    is_there = context.emit(relax.op.greater(context.emit(relax.op.abs(x)), full_rank(_ZERO_SCORE, 2, dtype)))
    powers = context.emit(relax.op.exp(context.emit(relax.op.subtract(x, largest))))
    alone = context.emit(relax.op.exp(context.emit(relax.op.negative(largest))))
    powers = context.emit(relax.op.where(is_there, powers, context.emit(relax.op.multiply(x, alone))))
    counted = context.emit(relax.op.where(is_there, powers, full_rank(0, 2, dtype)))
    return relax.op.divide(powers, context.emit(relax.op.sum(counted, axis=1, keepdims=True)))


def _probit(context: NodeContext, x: Any) -> Any:
    """Return the quantile of the normal distribution, by Winitzki's formula for the inverse error function."""

    def number(value: float) -> Any:
        return full_rank(value, rank_of(x), dtype_of(x))

    doubled = context.node("Sub", context.node("Mul", x, number(2)), number(1))
    log = context.node(
        "Log", context.node("Mul", *(context.node(sign, number(1), doubled) for sign in ("Sub", "Add")))
    )
    middle = context.node("Add", context.node("Mul", log, number(0.5)), number(2 / (3.14159 * 0.147)))
    inside = context.node(
        "Sub", context.node("Mul", middle, middle), context.node("Mul", log, number(1 / 0.147))
    )
    root = context.node("Sqrt", context.node("Sub", context.node("Sqrt", inside), middle))
    is_negative = context.emit(relax.op.less(doubled, number(0)))
    signed = context.emit(relax.op.where(is_negative, context.emit(relax.op.negative(root)), root))
    return relax.op.multiply(signed, number(1.41421356))
