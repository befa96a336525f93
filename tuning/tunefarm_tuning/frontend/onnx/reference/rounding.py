"""Nodes that round activations to integers, as those of quantised networks do."""

from __future__ import annotations

import onnx

_ROUNDING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QGemm", "QAttention"})
COMPUTES_ON = frozenset({"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention"})
"""Operators that round values and compute with the results."""
FEEDS_BACK = frozenset({"DynamicQuantizeLSTM"})
"""Those of them that do so in steps."""


def is_rounding(node: onnx.NodeProto) -> bool:
    """Return whether a node rounds what it is given, or what it computes, to integers."""
    return node.op_type in _ROUNDING or node.op_type in COMPUTES_ON or node.op_type.startswith("QLinear")


def rounds_values(graph: onnx.GraphProto) -> bool:
    """Return whether a graph quantises activations; quantised weights do not count."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    return any(is_rounding(node) and node.input[0] not in constants for node in graph.node)
