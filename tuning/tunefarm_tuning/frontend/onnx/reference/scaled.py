"""Multiply the weights of some layers of a network by inputs of it, to try whether the comparison notices a layer that is off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from tunefarm_tuning.frontend.onnx.reference.float64 import bind_shapes
from tunefarm_tuning.frontend.onnx.reference.inferred_types import with_inferred_types
from tunefarm_tuning.workload.task import TensorSpec

WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"})
"""Operators of layers with weights."""


def weighted_nodes(model: onnx.ModelProto, specs: Sequence[TensorSpec]) -> list[int]:
    """Return the positions of the nodes whose weights do not depend on the network's inputs and are float32."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    bind_shapes(twin, specs)
    try:
        inferred = with_inferred_types(twin)
    except Exception:  # noqa: BLE001  (then no layer is tried)
        return []
    types: Mapping[str, int] = {
        **{value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info},
        **{tensor.name: tensor.data_type for tensor in inferred.graph.initializer},
    }
    fixed = {tensor.name for tensor in model.graph.initializer}
    positions = []
    for position, node in enumerate(model.graph.node):
        if all(name in fixed for name in node.input if name):
            fixed.update(node.output)
        elif (
            node.op_type in WEIGHTED
            and len(node.input) > 1
            and node.input[1] in fixed
            and types.get(node.input[1]) == TensorProto.FLOAT
        ):
            positions.append(position)
    return positions


def with_scales(model: onnx.ModelProto, positions: Sequence[int]) -> tuple[bytes, list[str]]:
    """Return a network whose weights, of the nodes at these positions, are multiplied by inputs of it; and the inputs' names."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    nodes = list(twin.graph.node)
    names: list[str] = []
    for position in reversed(positions):
        node = nodes[position]
        scale, weights = f"{node.output[0]} scale", f"{node.output[0]} scaled weights"
        twin.graph.input.append(helper.make_tensor_value_info(scale, TensorProto.FLOAT, []))
        nodes.insert(position, helper.make_node("Mul", [node.input[1], scale], [weights]))
        node.input[1] = weights
        names.insert(0, scale)
    del twin.graph.node[:]
    twin.graph.node.extend(nodes)
    return bytes(twin.SerializeToString()), names
