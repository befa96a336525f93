"""Converters of operators of ``ai.onnx.ml`` that replace numbers by other numbers, and that put columns side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    full_rank,
    needed_open_shape,
    rank_of,
)

_DEFAULTS: Mapping[str, Any] = {"int64s": np.array([-1], np.int64), "floats": np.array([-0.0], np.float32)}

_MOST_COMPARISONS = 1 << 26
"""Most comparisons of numbers with keys: each takes an integer of 4 bytes."""


def convert_one_hot_encoder(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `OneHotEncoder` of integers: a column for each category; one that is not known has zeros."""
    categories = np.array(attributes.get("cats_int64s", ()), np.int64)
    if not categories.size or len(np.unique(categories)) < categories.size:
        raise UnsupportedFormError("its categories must be different integers; strings are not supported")
    x = context.emit(relax.op.astype(inputs[0], "int64"))
    return relax.op.astype(_equal(context, x, categories), "float32")


def convert_label_encoder(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LabelEncoder` of numbers: each key becomes its value, what is no key the default."""
    x = inputs[0]
    keys, _ = _numbers(attributes, "keys")
    values, kind = _numbers(attributes, "values")
    if keys.dtype != dtype_of(x) or keys.size != values.size or not keys.size:
        raise UnsupportedFormError(
            f"{keys.size} keys of {keys.dtype} and {values.size} values for an input of {dtype_of(x)}"
        )
    default = _default(attributes, kind, values.dtype)
    _, first = np.unique(keys, return_index=True)  # of equal keys, the first one counts
    keys, values = keys[np.sort(first)], values[np.sort(first)]
    elements = prod(size for size in needed_open_shape(x) if isinstance(size, int))
    if keys.size * elements > _MOST_COMPARISONS:
        raise UnsupportedFormError(
            f"{keys.size} keys for {elements} numbers; the limit of their product is {_MOST_COMPARISONS}"
        )
    is_key = context.emit(relax.op.astype(_equal(context, x, keys), "int32"))
    chosen = context.emit(relax.op.argmax(is_key, axis=-1))
    taken = context.emit(relax.op.take(const(values), chosen, axis=0))
    is_known = context.emit(relax.op.astype(context.emit(relax.op.max(is_key, axis=-1)), "bool"))
    return relax.op.where(is_known, taken, full_rank(default, rank_of(x), str(values.dtype)))


def convert_feature_vectorizer(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `FeatureVectorizer`: the columns of its inputs side by side, in float32."""
    widths = [int(width) for width in attributes.get("inputdimensions", ())]
    shapes = [needed_open_shape(x) for x in inputs]
    if [shape[1:] for shape in shapes] != [(width,) for width in widths]:
        raise UnsupportedFormError("its inputs must be matrices with as many columns as inputdimensions says")
    columns = [context.emit(relax.op.astype(x, "float32")) for x in inputs]
    return relax.op.concat(columns, axis=1)


def _equal(context: NodeContext, x: Any, numbers: NDArray[Any]) -> Any:
    """Return which numbers equal each element, along a new last axis; NaN equals NaN, as among ONNX Runtime's keys."""
    wide = context.emit(relax.op.expand_dims(x, -1))
    row = numbers.reshape((1,) * rank_of(x) + (-1,))
    is_equal = context.emit(relax.op.equal(wide, const(row)))
    if numbers.dtype.kind != "f" or not np.isnan(numbers).any():
        return is_equal
    both = relax.op.logical_and(context.emit(relax.op.isnan(wide)), const(np.isnan(row)))
    return context.emit(relax.op.logical_or(is_equal, context.emit(both)))


def _numbers(attributes: Mapping[str, Any], name: str) -> tuple[NDArray[Any], str]:
    """Return the keys or the values, and the end of the attribute's name."""
    tensor = attributes.get(f"{name}_tensor")
    if tensor is not None:
        array = _array(tensor)
        if array.dtype.kind not in "iuf":
            raise UnsupportedFormError(_texts(name))
        return array.reshape(-1), "tensor"
    for kind, default in _DEFAULTS.items():
        if len(attributes.get(f"{name}_{kind}", ())):
            numbers = np.array(attributes[f"{name}_{kind}"], default.dtype)
            if name == "keys" and np.isnan(numbers).any():
                raise UnsupportedFormError(
                    "NaN is a key, which means one thing in opset 2 and another in opset 4"
                )
            return numbers, kind
    raise UnsupportedFormError(_texts(name))


def _texts(name: str) -> str:
    return f"its {name} must be numbers; strings are not supported"


def _default(attributes: Mapping[str, Any], kind: str, dtype: np.dtype[Any]) -> Any:
    """Return the value of what is no key."""
    if kind == "tensor":
        tensor = attributes.get("default_tensor")
        if tensor is not None:
            return _array(tensor).reshape(-1)[0]
        return dtype.type(-1 if dtype.kind in "iu" else -0.0)
    return attributes.get(f"default_{kind.removesuffix('s')}", _DEFAULTS[kind][0])


def _array(tensor: Any) -> NDArray[Any]:
    return np.asarray(onnx.numpy_helper.to_array(tensor) if isinstance(tensor, onnx.TensorProto) else tensor)
