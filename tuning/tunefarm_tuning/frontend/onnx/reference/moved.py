"""Move the inputs and weights of a network by about a unit in the last place, as another order of sums would move its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import constant_tensors
from tunefarm_tuning.frontend.onnx.reference.rounding import step_input

KEPT_BY_OPERATOR = frozenset({"Resize", "Upsample", "Pad", "Range", "Expand", "Tile", "OneHot"})
"""Operators whose float constants decide a shape."""
_LEAST_WEIGHTS = 8
_EQUAL_MULTIPLE = 32.0
"""How many times as far equal weights are moved as others."""
_STEPS_OF_INTEGERS = 2.0**-13
"""How far the step of a node is moved that sums integers: a sum of half a step may be the rest of terms of 255 steps."""
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


def with_moved_weights(
    model: onnx.ModelProto, moved_by: float, rng: np.random.Generator, *, steps_by: float = 0.0
) -> bytes:
    """Return a network whose weights are moved alike, but for constants that decide a shape; as bytes.

    If `steps_by` is not 0, the step that each node rounds to is that share larger. Ties then all turn the same way, also where
    integers go in, which nothing else moves.

    Equal weights are moved together, and further: a sum of equal terms is rounded in the same direction at each of its steps.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    kept = {name for node in twin.graph.node if node.op_type in KEPT_BY_OPERATOR for name in node.input}
    weights = [(tensor.name, tensor, _LEAST_WEIGHTS) for tensor in twin.graph.initializer]
    weights += [
        (node.output[0], attribute.t, 1 if node.op_type == "ConstantOfShape" else _LEAST_WEIGHTS)
        for node in twin.graph.node
        if node.op_type in ("Constant", "ConstantOfShape")
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    for name, tensor, least in weights:
        if tensor.data_type == TensorProto.FLOAT and name not in kept:
            values = numpy_helper.to_array(tensor)
            if values.size >= least:
                moved = (
                    _moved_together(values, moved_by, rng)
                    if np.all(values == values.flat[0])
                    else moved_array(values, moved_by, rng)
                )
                tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    if steps_by:
        _move_steps(twin, steps_by)
    return bytes(twin.SerializeToString())


def _move_steps(twin: onnx.ModelProto, moved_by: float) -> None:
    constants = dict(constant_tensors(twin.graph))
    for number, node in enumerate(twin.graph.node):
        position = step_input(node)
        if position is None or position >= len(node.input):
            continue
        step = constants.get(node.input[position])
        if step is None or step.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(step)
        name = f"{step.name} of node {number}"
        share = moved_by if node.op_type == "QuantizeLinear" else np.copysign(_STEPS_OF_INTEGERS, moved_by)
        moved = (values * (1.0 + share)).astype(values.dtype)
        twin.graph.initializer.append(numpy_helper.from_array(moved, name))
        node.input[position] = name  # a step of its own: others may be the same constant


def _moved_together(array: NDArray[Any], moved_by: float, rng: np.random.Generator) -> NDArray[Any]:
    share = _EQUAL_MULTIPLE * moved_by * rng.uniform(0.5, 1.0) * rng.choice([-1.0, 1.0])
    return array if _is_whole(array) else np.asarray((array * (1.0 + share)).astype(array.dtype))


def median_size(array: NDArray[Any], origin: NDArray[Any] | None = None) -> float:
    """Return the median size of finite elements, or of their distance from another array's."""
    with np.errstate(all="ignore"):
        sizes = np.abs(array.astype(np.float64) - (0.0 if origin is None else origin.astype(np.float64)))
    finite = sizes[np.isfinite(sizes)]
    return float(np.median(finite)) if finite.size else 0.0
