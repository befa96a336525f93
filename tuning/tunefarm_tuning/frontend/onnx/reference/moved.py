"""Move the inputs and weights of a network by about a unit in the last place, as another order of sums would move its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

KEPT_BY_OPERATOR = frozenset({"Resize", "Upsample", "Pad", "Range", "Expand", "Tile", "OneHot"})
"""Operators whose float constants decide a shape."""
_LEAST_WEIGHTS = 8
_WHOLE_UP_TO = 2.0**24


def moved_array(array: NDArray[Any], moved_by: float, rng: np.random.Generator) -> NDArray[Any]:
    """Move floats by a share of themselves; whole numbers, which may be compared with others, stay."""
    if array.dtype not in (np.float32, np.float64) or _is_whole(array):
        return array
    moved = array.astype(np.float64) * (1.0 + moved_by * rng.uniform(-1.0, 1.0, size=array.shape))
    return np.asarray(moved.astype(array.dtype))


def _is_whole(array: NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.all((array == np.round(array)) & (np.abs(array) < _WHOLE_UP_TO)))


def with_moved_weights(model: onnx.ModelProto, moved_by: float, rng: np.random.Generator) -> bytes:
    """Return a network whose weights are moved alike, but for constants that decide a shape; as bytes."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    kept = {name for node in twin.graph.node if node.op_type in KEPT_BY_OPERATOR for name in node.input}
    constants = [
        (node.output[0], attribute.t)
        for node in twin.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    for name, tensor in [*((tensor.name, tensor) for tensor in twin.graph.initializer), *constants]:
        if tensor.data_type == TensorProto.FLOAT and name not in kept:
            values = numpy_helper.to_array(tensor)
            if values.size >= _LEAST_WEIGHTS:
                tensor.CopyFrom(numpy_helper.from_array(moved_array(values, moved_by, rng), tensor.name))
    return bytes(twin.SerializeToString())


def median_size(array: NDArray[Any], origin: NDArray[Any] | None = None) -> float:
    """Return the median size of finite elements, or of their distance from another array's."""
    with np.errstate(all="ignore"):
        sizes = np.abs(array.astype(np.float64) - (0.0 if origin is None else origin.astype(np.float64)))
    finite = sizes[np.isfinite(sizes)]
    return float(np.median(finite)) if finite.size else 0.0
