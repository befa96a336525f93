"""Evaluate single nodes whose inputs are constants: mostly the arithmetic that exporters do with shapes.

Only small tensors are folded here: weights are folded by the compiler's graph passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

MAX_ELEMENTS = 4096
_MAX_WEIGHTS = 1 << 22
_DEQUANTIZED_SINCE = 19
"""The first opset whose `DequantizeLinear` ONNX's evaluator knows; of scalars it means the same in all."""

_FOLDED = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Concat", "Constant", "ConstantOfShape",
    "Cos", "CumSum", "DequantizeLinear", "Div", "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather",
    "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "MatMul",
    "Max", "MelWeightMatrix", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pow", "Range",
    "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "ReverseSequence", "Round",
    "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice", "Split", "Sqrt", "Squeeze",
    "Sub", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze", "Where", "Xor",
})  # fmt: skip


def is_folded(operator: str) -> bool:
    """Return whether nodes of an operator are evaluated here."""
    return operator in _FOLDED


def fold_node(
    node: onnx.NodeProto, values: Sequence[NDArray[Any] | None], opset: int
) -> list[NDArray[Any]] | None:
    """Return the values of a node's outputs, or None if it is left to the run.

    Args:
        node: The node.
        values: Its inputs; None for one that is left out.
        opset: Version of ONNX's operator set.
    """
    present = [value for value in values if value is not None]
    if node.op_type not in _FOLDED or sum(value.size for value in present) > MAX_ELEMENTS:
        return None
    if node.op_type == "Unique" and any(a.name == "sorted" and not a.i for a in node.attribute):
        return None  # ONNX's evaluator mistakes the order
    if node.op_type == "DequantizeLinear":
        if any(value.ndim for value in present):
            return None  # a weight, which is multiplied as it is stored; of scalars, shapes may be computed
        opset = max(opset, _DEQUANTIZED_SINCE)
    try:
        if not _stays_small(node.op_type, present):
            return None
        computed = [_one_hot(node, *present)] if node.op_type == "OneHot" else _evaluate(node, values, opset)
    except Exception:  # noqa: BLE001  (the importer or ONNX Runtime may still do it, or say what is wrong)
        return None
    if any(not isinstance(value, np.ndarray | np.generic) for value in computed):
        return None
    return [np.array(value, order="C") for value in computed]


def _evaluate(node: onnx.NodeProto, values: Sequence[NDArray[Any] | None], opset: int) -> list[Any]:
    def untyped(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_value_info(name, onnx.TypeProto())

    names = ["" if value is None else f"i{number}" for number, value in enumerate(values)]
    results = [f"o{number}" for number in range(len(node.output))]
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    del alone.input[:], alone.output[:]
    alone.input.extend(names)
    alone.output.extend(results)
    graph = onnx.helper.make_graph(
        [alone], "node", [untyped(name) for name in names if name], [untyped(name) for name in results]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))


def _one_hot(
    node: onnx.NodeProto, indices: NDArray[Any], depth: NDArray[Any], values: NDArray[Any]
) -> NDArray[Any]:
    """Return a `OneHot`, with which exporters write repetitions: ONNX's evaluator wraps indices that are out of range around."""
    size = int(depth.reshape(-1)[0])
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
    hot = np.expand_dims(indices, axis)
    steps = np.arange(size).reshape(-1, *[1] * (indices.ndim - axis % (indices.ndim + 1)))
    off, on = values
    encoded: NDArray[Any] = np.where((hot == steps) | (hot == steps - size), on, off)
    return encoded


def _stays_small(operator: str, present: Sequence[NDArray[Any]]) -> bool:
    """Whether the result cannot be much larger than the inputs: a few bytes may ask for gigabytes."""
    if operator == "ConstantOfShape":
        return math.prod(int(size) for size in present[0].reshape(-1)) <= MAX_ELEMENTS
    if operator == "OneHot":
        return max(present[0].size, 1) * int(present[1].reshape(-1)[0]) <= MAX_ELEMENTS
    if operator == "TopK":  # in older opsets the number is an attribute, and no shape is computed with it
        return len(present) == 2 and int(present[1].reshape(-1)[0]) <= MAX_ELEMENTS
    if operator == "Expand":
        wanted = tuple(int(size) for size in present[1].reshape(-1))
        return math.prod(np.broadcast_shapes(present[0].shape, wanted)) <= MAX_ELEMENTS
    if operator == "Tile":
        factor = math.prod(int(size) for size in present[1].reshape(-1))
        return present[0].size * abs(factor) <= MAX_ELEMENTS
    if operator == "MelWeightMatrix":
        bins, length = (int(value.reshape(-1)[0]) for value in present[:2])
        return bins * (length // 2 + 1) <= _MAX_WEIGHTS
    if operator == "Range":
        start, limit, delta = (float(value.reshape(-1)[0]) for value in present)
        return delta != 0 and abs(limit - start) / abs(delta) <= MAX_ELEMENTS
    return True
