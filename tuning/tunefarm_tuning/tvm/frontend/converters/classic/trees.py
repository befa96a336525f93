"""Converters of decision trees (``ai.onnx.ml``): gradient boosting and random forests, as scikit-learn, LightGBM and XGBoost export them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.classic.feature_scaling import class_labels, transformed_scores
from tunefarm_tuning.tvm.frontend.converters.classic.tree_nodes import (
    Nodes,
    classic_nodes,
    forest_of,
    numbers_of,
    tree_ensemble_nodes,
)
from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    needed_open_shape,
    text,
)
from tunefarm_tuning.tvm.kernels.layers.trees import forest_kernel

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""As `TreeEnsemble` numbers them."""


def convert_tree_ensemble(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `TreeEnsemble`."""
    nodes = tree_ensemble_nodes(attributes)
    is_mean = {0: True, 1: False}.get(int(attributes.get("aggregate_function", 1)))
    if is_mean is None:
        raise UnsupportedFormError("aggregate_function is supported as AVERAGE and SUM only")
    sums = _sums(context, inputs[0], nodes, int(attributes.get("n_targets", 1)), is_mean=is_mean)
    return transformed_scores(context, sums, _TRANSFORMS[int(attributes.get("post_transform", 0))])


def convert_tree_ensemble_regressor(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `TreeEnsembleRegressor`."""
    nodes = classic_nodes(attributes, "target")
    is_mean = {"AVERAGE": True, "SUM": False}.get(text(attributes, "aggregate_function", "SUM"))
    if is_mean is None:
        raise UnsupportedFormError("aggregate_function is supported as AVERAGE and SUM only")
    num_targets = int(attributes.get("n_targets", 1))
    sums = _sums(context, inputs[0], nodes, num_targets, is_mean=is_mean)
    bases = numbers_of(attributes, "base_values")
    if len(bases) == num_targets:  # else ONNX Runtime leaves them out
        sums = context.emit(relax.op.add(sums, const(bases.astype(dtype_of(sums)).reshape(1, -1))))
    y = transformed_scores(context, sums, text(attributes, "post_transform", "NONE"))
    return relax.op.astype(y, "float32")


def convert_tree_ensemble_classifier(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `TreeEnsembleClassifier`, as ONNX Runtime computes what ONNX leaves open: two classes of which one has weights."""
    labels = class_labels(attributes, "classlabels_int64s")
    nodes = classic_nodes(attributes, "class")
    sums = _sums(context, inputs[0], nodes, len(labels), is_mean=False)
    transform = text(attributes, "post_transform", "NONE")
    bases = numbers_of(attributes, "base_values").astype(dtype_of(sums))
    weighed = np.unique(nodes.targets)
    if len(labels) == 2 and len(weighed) < 2:
        chosen, scores = _two_classes(context, sums, nodes, bases, transform)
    else:
        if len(bases) not in (0, len(labels)) or (len(bases) and len(labels) == 2):
            raise UnsupportedFormError(f"{len(bases)} base_values for {len(labels)} classes")
        if len(bases):
            sums = context.emit(relax.op.add(sums, const(bases.reshape(1, -1))))
        if len(labels) == 2:
            above = context.emit(relax.op.greater(_column(context, sums, 1), _zero(sums)))
            chosen = relax.op.astype(above, "int64")
            labels = np.arange(2)  # ONNX Runtime returns these, whatever the labels are
        else:
            chosen = relax.op.argmax(sums, axis=1)
        scores = transformed_scores(context, sums, transform)
    label = relax.op.take(const(labels), context.emit(chosen), axis=0)
    return relax.Tuple([context.emit(label), context.emit(relax.op.astype(scores, "float32"))])


def _two_classes(
    context: NodeContext, sums: Any, nodes: Nodes, bases: NDArray[Any], transform: str
) -> tuple[Any, Any]:
    """Return the index of the class, and both classes' scores, where the trees weigh one class.

    If it is the second, ONNX Runtime gives the first a score of 0, and leaves out the base value.
    """
    weighed = int(nodes.targets[0]) if len(nodes.targets) else 0
    is_second = weighed == 1
    if len(bases) > 1 or (transform not in ("NONE", "LOGISTIC") and not is_second):
        raise UnsupportedFormError(
            f"two classes of which one has weights, with {len(bases)} base_values and {transform}"
        )
    score = _column(context, sums, weighed)
    if len(bases) and not is_second:
        score = context.emit(relax.op.add(score, const(bases.reshape(1))))
    is_positive = bool((nodes.weights >= 0).all())
    threshold = const(np.full(1, 0.5 if is_positive else 0, dtype_of(sums)))
    chosen = relax.op.astype(context.emit(relax.op.greater(score, threshold)), "int64")
    if is_second:
        return chosen, transformed_scores(context, sums, transform)
    if is_positive:
        if transform != "NONE":
            raise UnsupportedFormError(
                f"two classes of which one has weights, all positive, with {transform}"
            )
        other = context.emit(relax.op.subtract(const(np.ones(1, dtype_of(sums))), score))
    elif transform == "LOGISTIC":
        other = context.emit(relax.op.sigmoid(context.emit(relax.op.negative(score))))
        score = context.emit(relax.op.sigmoid(score))
    else:
        other = context.emit(relax.op.negative(score))
    return chosen, context.emit(relax.op.stack([other, score], axis=1))


def _column(context: NodeContext, x: Any, column: int) -> Any:
    return context.emit(relax.op.take(x, relax.const(column, "int64"), axis=1))


def _zero(x: Any) -> Any:
    return const(np.zeros(1, dtype_of(x)))


def _sums(context: NodeContext, x: Any, nodes: Nodes, num_targets: int, *, is_mean: bool) -> Any:
    """Return the sums (or means over the trees) of the weights of the leaves that rows come to: ``[rows, targets]``."""
    shape = needed_open_shape(x)
    if len(shape) != 2 or not isinstance(shape[1], int):
        raise UnsupportedFormError("its input must have two dimensions, of which the second is fixed")
    if nodes.num_columns > shape[1]:
        raise UnsupportedFormError(f"a node reads feature {nodes.num_columns - 1} of {shape[1]}")
    if len(nodes.targets) and not 0 <= int(nodes.targets.min()) <= int(nodes.targets.max()) < num_targets:
        raise UnsupportedFormError(f"a leaf has a weight for a target that is not among the {num_targets}")
    dtype = "float64" if dtype_of(x) == "float64" else "float32"
    forest = forest_of(nodes, dtype)
    kernel = context.bb.add_func(forest_kernel(forest, shape[0], shape[1], num_targets), "trees")
    rows = context.emit(relax.op.astype(x, dtype))
    arguments = [rows, *(const(array) for array in forest.arrays)]
    result = relax.call_tir(kernel, arguments, out_ty=relax.TensorType((shape[0], num_targets), dtype))
    sums = context.emit(result)
    if not is_mean:
        return sums
    return context.emit(relax.op.divide(sums, const(np.full((1, 1), nodes.num_trees, dtype))))
