"""Constant folding in the importer: mostly the arithmetic that exporters do with shapes.

TVM's importer folds some of it and leaves the other nodes to the run, where the shapes are then unknown. Only small tensors are folded
here: weights are folded by the graph passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import const, constant

_MAX_ELEMENTS = 4096

_FOLDED = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal", "Expand",
    "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Range", "ReduceMax",
    "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Sign",
    "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
    "Xor",
})  # fmt: skip


def fold(operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int, outputs: int) -> Any:
    """Return the value of a node of constants, itself a constant or a tuple of them; None if it is computed at run time."""
    if operator not in _FOLDED or not inputs:
        return None
    values = [constant(x) for x in inputs]
    if any(value is None and x is not None for value, x in zip(values, inputs, strict=True)):
        return None
    present = [value for value in values if value is not None]
    if sum(value.size for value in present) > _MAX_ELEMENTS or not _stays_small(operator, present):
        return None
    names = ["" if value is None else f"i{number}" for number, value in enumerate(values)]
    results = [f"o{number}" for number in range(outputs)]
    own_attributes = {name: value for name, value in attributes.items() if name != "tvm_custom"}
    node = onnx.helper.make_node(operator, names, results, **own_attributes)
    try:
        computed = _evaluate(node, {n: v for n, v in zip(names, values, strict=True) if v is not None}, opset)
    except Exception:  # noqa: BLE001  (TVM's converter may still do it, or say what is wrong)
        return None
    if any(not isinstance(value, np.ndarray | np.generic) for value in computed):
        return None
    constants = [const(np.ascontiguousarray(value).reshape(value.shape)) for value in computed]
    return constants[0] if len(constants) == 1 else relax.Tuple(constants)


def _evaluate(node: onnx.NodeProto, feeds: dict[str, NDArray[Any]], opset: int) -> list[Any]:
    def untyped(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_value_info(name, onnx.TypeProto())

    graph = onnx.helper.make_graph(
        [node], "node", [untyped(name) for name in feeds], [untyped(name) for name in node.output]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))


def _stays_small(operator: str, present: Sequence[NDArray[Any]]) -> bool:
    """Whether the result cannot be much larger than the inputs: a few bytes may ask for gigabytes."""
    if operator == "ConstantOfShape":
        return math.prod(int(size) for size in present[0].reshape(-1)) <= _MAX_ELEMENTS
    if operator in ("Expand", "Tile"):
        factor = math.prod(int(size) for size in present[1].reshape(-1))
        return present[0].size * abs(factor) <= _MAX_ELEMENTS
    if operator == "Range":
        start, limit, delta = (float(value.reshape(-1)[0]) for value in present)
        return delta != 0 and abs(limit - start) / abs(delta) <= _MAX_ELEMENTS
    return True
