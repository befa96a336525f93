"""Converters of support-vector machines (``ai.onnx.ml``), as scikit-learn's converters and LIBSVM's write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.classic.feature_scaling import class_labels, transformed_scores
from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    full_rank,
    needed_open_shape,
    text,
)
from tunefarm_tuning.tvm.kernels.layers.coupling import coupling_kernel

_LEAST_PROBABILITY = 1e-7
"""ONNX Runtime's lower bound of a pair's probability."""
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_MOST_WEIGHTS = 1 << 26
"""Most elements of the matrices that count vectors and votes for pairs of classes: 256 MB."""


def convert_svm_regressor(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `SVMRegressor`, also of one class: 1 inside, -1 outside."""
    if text(attributes, "post_transform", "NONE") != "NONE":
        raise UnsupportedFormError("post_transform is supported as NONE only")
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    coefficients = _floats(attributes, "coefficients")
    count = int(attributes.get("n_supports", 0))
    if count:
        x = _kernel(context, x, _vectors(attributes, count), attributes)
    rho = _rho(attributes, 1)
    _check_columns(x, len(coefficients), "coefficients")
    y = context.emit(
        relax.op.add(context.node("MatMul", x, const(coefficients.reshape(-1, 1))), const(rho[:1]))
    )
    if not attributes.get("one_class", 0):
        return y
    is_inside = context.emit(relax.op.greater(y, full_rank(0, 2, "float32")))
    return relax.op.where(is_inside, full_rank(1, 2, "float32"), full_rank(-1, 2, "float32"))


def convert_svm_classifier(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `SVMClassifier`: the label with most votes of its pairs, and scores of pairs or probabilities of classes."""
    labels = class_labels(attributes, "classlabels_ints")
    supports = [int(number) for number in attributes.get("vectors_per_class", ())]
    x = context.emit(relax.op.astype(inputs[0], "float32"))
    if sum(supports) == 0:
        return _linear(context, x, labels, attributes)
    if len(supports) != len(labels) or min(supports) < 0:
        raise UnsupportedFormError(f"vectors_per_class has {len(supports)} numbers for {len(labels)} classes")
    count = len(labels) * (len(labels) - 1) // 2
    rho = _rho(attributes, count)
    if count * max(sum(supports), len(labels)) > _MOST_WEIGHTS:
        raise UnsupportedFormError(
            f"{count} pairs of {len(labels)} classes times {max(sum(supports), len(labels))} support vectors or classes; "
            f"the limit is {_MOST_WEIGHTS}"
        )
    pairs = list(combinations(range(len(labels)), 2))
    products = _kernel(context, x, _vectors(attributes, sum(supports)), attributes)
    weights = _pair_weights(attributes, supports, pairs)
    scores = context.emit(relax.op.add(context.node("MatMul", products, const(weights)), const(rho)))
    label = _label(context, labels, _votes(context, scores, pairs, len(labels)))
    transform = text(attributes, "post_transform", "NONE")
    if len(_floats(attributes, "prob_a")):
        results = _probabilities(context, scores, attributes, pairs, len(labels))
    elif len(labels) > 2:
        results = scores
    else:
        other = (
            relax.op.negative(scores)
            if transform == "NONE"
            else relax.op.subtract(full_rank(1, 2, "float32"), scores)
        )
        both = context.emit(relax.op.concat([context.emit(other), scores], axis=1))
        return relax.Tuple([label, both])
    return relax.Tuple([label, transformed_scores(context, results, transform)])


def _linear(context: NodeContext, x: Any, labels: NDArray[np.int64], attributes: Mapping[str, Any]) -> Any:
    """Return label and scores of a machine without vectors: one row of coefficients for each class."""
    coefficients = _floats(attributes, "coefficients")
    _check_columns(x, len(coefficients) // len(labels), "coefficients of each class")
    weights = coefficients.reshape(len(labels), -1).T
    rho = _rho(attributes, 1)[:1]
    scores = context.emit(
        relax.op.add(context.node("MatMul", x, const(np.ascontiguousarray(weights))), const(rho))
    )
    if len(labels) == 2 and not len(_floats(attributes, "prob_a")):
        # ONNX Runtime takes the second class wherever any score says yes.
        best = context.emit(relax.op.max(scores, axis=1))
        is_positive = bool((coefficients >= 0).all())
        threshold = full_rank(0.5 if is_positive else 0, 1, "float32")
        compare = relax.op.greater_equal if is_positive else relax.op.greater
        says_yes = context.emit(compare(best, threshold))
        first = context.emit(relax.op.argmax(scores, axis=1))
        chosen = context.emit(relax.op.where(says_yes, full_rank(1, 1, "int64"), first))
        label = context.emit(relax.op.take(const(labels), chosen, axis=0))
    else:
        label = _label(context, labels, scores)
    return relax.Tuple(
        [label, transformed_scores(context, scores, text(attributes, "post_transform", "NONE"))]
    )


def _kernel(context: NodeContext, x: Any, vectors: NDArray[np.float32], attributes: Mapping[str, Any]) -> Any:
    """Return the kernel function of each row and each vector."""
    kind = text(attributes, "kernel_type", "LINEAR")
    if kind not in _KERNELS:
        raise UnsupportedFormError(f"kernel_type {kind!r}; supported are {', '.join(_KERNELS)}")
    parameters = _floats(attributes, "kernel_params")
    gamma, offset, degree = parameters[:3] if len(parameters) >= 3 else np.zeros(3, np.float32)
    _check_columns(x, vectors.shape[1], "numbers of a support vector")
    if kind == "RBF":
        columns = context.emit(relax.op.expand_dims(x, 1))
        difference = context.emit(relax.op.subtract(columns, const(vectors[np.newaxis])))
        distance = context.emit(relax.op.sum(context.emit(relax.op.multiply(difference, difference)), axis=2))
        return context.emit(
            relax.op.exp(context.emit(relax.op.multiply(distance, full_rank(-gamma, 2, "float32"))))
        )
    product = context.node("MatMul", x, const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    scaled = context.emit(relax.op.multiply(product, full_rank(gamma, 2, "float32")))
    shifted = context.emit(relax.op.add(scaled, full_rank(offset, 2, "float32")))
    if kind == "SIGMOID":
        return context.emit(relax.op.tanh(shifted))
    if degree not in (2, 3):
        return context.node("Pow", shifted, full_rank(degree, 2, "float32"))
    square = context.emit(relax.op.multiply(shifted, shifted))
    return square if degree == 2 else context.emit(relax.op.multiply(square, shifted))


def _pair_weights(
    attributes: Mapping[str, Any], supports: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> NDArray[np.float32]:
    """Return what each vector weighs in the score of each pair: ``[vectors, pairs]``. A class has no row of itself in the file."""
    starts = np.concatenate([[0], np.cumsum(supports)])
    coefficients = _floats(attributes, "coefficients")
    if len(coefficients) != (len(supports) - 1) * starts[-1]:
        raise UnsupportedFormError(
            f"it has {len(coefficients)} coefficients for {len(supports)} classes and {starts[-1]} support vectors"
        )
    rows = coefficients.reshape(len(supports) - 1, -1)
    weights = np.zeros((starts[-1], len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        for of_class, row in ((i, j - 1), (j, i)):
            of_vectors = slice(starts[of_class], starts[of_class + 1])
            weights[of_vectors, number] = rows[row, of_vectors]
    return weights


def _votes(context: NodeContext, scores: Any, pairs: Sequence[tuple[int, int]], classes: int) -> Any:
    """Return the number of pairs that each class wins: the first of two where the score is positive."""
    first, second = np.eye(classes, dtype=np.float32)[np.array(pairs)].swapaxes(0, 1)
    is_first = context.emit(relax.op.greater(scores, full_rank(0, 2, "float32")))
    won = context.node("MatMul", context.emit(relax.op.astype(is_first, "float32")), const(first - second))
    return context.emit(relax.op.add(won, const(second.sum(axis=0, keepdims=True))))


def _probabilities(
    context: NodeContext,
    scores: Any,
    attributes: Mapping[str, Any],
    pairs: Sequence[tuple[int, int]],
    classes: int,
) -> Any:
    slopes, shifts = _floats(attributes, "prob_a"), _floats(attributes, "prob_b")
    if len(slopes) != len(pairs) or len(shifts) != len(pairs):
        raise UnsupportedFormError(
            f"prob_a and prob_b have {len(slopes)} and {len(shifts)} numbers for {len(pairs)} pairs"
        )
    line = context.emit(relax.op.add(context.emit(relax.op.multiply(scores, const(slopes))), const(shifts)))
    sigmoid = context.emit(relax.op.sigmoid(context.emit(relax.op.negative(line))))
    least, most = (full_rank(bound, 2, "float32") for bound in (_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY))
    wins = context.emit(relax.op.minimum(context.emit(relax.op.maximum(sigmoid, least)), most))
    loses = context.emit(relax.op.subtract(full_rank(1, 2, "float32"), wins))
    nothing = context.emit(relax.op.subtract(wins, wins))
    all_columns = context.emit(relax.op.concat([wins, loses, nothing], axis=1))
    order = np.full((classes, classes), 2 * len(pairs), np.int64)
    for number, (i, j) in enumerate(pairs):
        order[i, j], order[j, i] = number, len(pairs) + number
    columns = context.emit(relax.op.take(all_columns, const(order.reshape(-1)), axis=1))
    rows = needed_open_shape(scores)[0]
    matrices = context.emit(relax.op.reshape(columns, (rows, classes, classes)))
    kernel = context.bb.add_func(coupling_kernel(rows, classes), "coupling")
    return context.emit(
        relax.call_tir(kernel, [matrices], out_ty=relax.TensorType((rows, classes), "float32"))
    )


def _label(context: NodeContext, labels: NDArray[np.int64], scores: Any) -> Any:
    chosen = context.emit(relax.op.argmax(scores, axis=1))
    return context.emit(relax.op.take(const(labels), chosen, axis=0))


def _vectors(attributes: Mapping[str, Any], count: int) -> NDArray[np.float32]:
    numbers = _floats(attributes, "support_vectors")
    if not len(numbers) or len(numbers) % count:
        raise UnsupportedFormError(f"support_vectors has {len(numbers)} numbers for {count} vectors")
    return numbers.reshape(count, -1)


def _rho(attributes: Mapping[str, Any], count: int) -> NDArray[np.float32]:
    rho = _floats(attributes, "rho")
    if len(rho) < count:
        raise UnsupportedFormError(f"rho has {len(rho)} numbers; it needs {count}")
    return rho[:count]


def _check_columns(x: Any, count: int, what: str) -> None:
    shape = needed_open_shape(x)
    if len(shape) != 2 or not isinstance(shape[1], int) or shape[1] != count:
        raise UnsupportedFormError(
            f"an input of shape {[str(size) for size in shape]} does not fit {count} {what}"
        )


def _floats(attributes: Mapping[str, Any], name: str) -> NDArray[np.float32]:
    return np.array(attributes.get(name, ()), np.float32)
