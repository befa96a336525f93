"""Nodes that round activations to integers, as those of quantised networks do."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tunefarm_tuning.frontend.onnx.graph_reading import constant_tensors

_ROUNDING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QGemm", "QAttention"})
COMPUTES_ON = frozenset({"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention"})
"""Operators that round values and compute with the results."""
FEEDS_BACK = frozenset({"DynamicQuantizeLSTM"})
"""Operators of `COMPUTES_ON` that feed the rounded values back, step by step."""


_WIDENING = frozenset({"Cast", "DequantizeLinear"})
"""Operators behind which weights of float16 are computed with as float32."""
_STEP_INPUTS = {
    "QuantizeLinear": 1,
    "QGemm": 7,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QLinearConcat": 0,
    "QLinearWhere": 7,
}
_STEP_INPUT_OF_OTHERS = 3
"""The same of other ``QLinear`` operators, which take a tensor, its step, its zero point, and then the step of the result."""


def step_input(node: onnx.NodeProto) -> int | None:
    """Return the position of the input that holds the step to which a node rounds; None if it has none."""
    if node.op_type.startswith("QLinear"):
        return _STEP_INPUTS.get(node.op_type, _STEP_INPUT_OF_OTHERS)
    return _STEP_INPUTS.get(node.op_type)


def is_rounding(node: onnx.NodeProto) -> bool:
    """Return whether a node rounds what it is given, or what it computes, to integers."""
    return node.op_type in _ROUNDING or node.op_type in COMPUTES_ON or node.op_type.startswith("QLinear")


def rounds_values(graph: onnx.GraphProto) -> bool:
    """Return whether a graph quantises activations; quantised weights do not count."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    return any(
        is_rounding(node) and not constants.issuperset(name for name in node.input if name)
        for node in graph.node
    )


def computes_in_float16(graph: onnx.GraphProto) -> bool:
    """Return whether a graph rounds to float16 what it computes; weights that it widens do not count."""
    widened = {name for node in graph.node if node.op_type in _WIDENING for name in node.input}
    return any(
        tensor.data_type == TensorProto.FLOAT16 and name not in widened
        for name, tensor in constant_tensors(graph)
    ) or any(
        attribute.name == "to" and attribute.i == TensorProto.FLOAT16
        for node in graph.node
        if node.op_type == "Cast"
        for attribute in node.attribute
    )
