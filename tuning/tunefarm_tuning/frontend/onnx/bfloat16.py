"""Find the tensors of a network that are bfloat16, and write a form of it that ONNX Runtime can run.

ONNX Runtime's CPU provider has casts of bfloat16 and next to nothing else. So results are made by a twin that holds such
tensors as float32 and rounds each node's results to bfloat16, as the network demands; and ONNX Runtime is
timed on a twin that does not round, the fastest that it can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import all_graphs, opsets_of

_NARROW, _WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT


def uses_bfloat16(graph: onnx.GraphProto) -> bool:
    """Return whether anything in a graph is bfloat16: a weight, or a node's result."""
    return any(
        any(tensor.data_type == _NARROW for tensor in subgraph.initializer)
        or any(_makes_narrow(attribute) for node in subgraph.node for attribute in node.attribute)
        for subgraph in all_graphs(graph)
    )


def narrow_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the tensors that are bfloat16, in all graphs of a model whose inputs are not."""
    if not uses_bfloat16(model.graph):
        return frozenset()
    narrow: set[str] = set()
    _follow(model.graph, opsets_of(model), narrow)
    return frozenset(narrow)


def widened(model: onnx.ModelProto, *, rounds: bool) -> onnx.ModelProto:
    """Return a float32 form of a network with the same inputs and outputs; `rounds`: whether it rounds bfloat16 tensors."""
    narrow = narrow_tensors(model)
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    for graph in all_graphs(twin.graph):
        del graph.value_info[:]
        for tensor in graph.initializer:
            _widen(tensor)
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    _widen(attribute.t)
            graph.node.extend(_with_rounding(node, narrow) if rounds else [_without_rounding(node)])
    return twin


def _makes_narrow(attribute: onnx.AttributeProto) -> bool:
    is_narrow_cast = attribute.name == "to" and attribute.i == _NARROW
    return bool(is_narrow_cast or (attribute.HasField("t") and attribute.t.data_type == _NARROW))


def _follow(graph: onnx.GraphProto, opsets: Mapping[str, int], narrow: set[str]) -> None:
    """Add the names of a graph's narrow tensors; nodes come in the order in which they compute."""
    narrow.update(tensor.name for tensor in graph.initializer if tensor.data_type == _NARROW)
    for node in graph.node:
        inner = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        for branch in inner:
            _follow(branch, opsets, narrow)
        results = zip(*([value.name for value in branch.output] for branch in inner), strict=False)
        if inner:
            narrow.update(
                name for name, sources in zip(node.output, results, strict=False) if narrow & set(sources)
            )
        elif node.op_type == "Cast" or any(attribute.HasField("t") for attribute in node.attribute):
            if any(_makes_narrow(attribute) for attribute in node.attribute):
                narrow.update(node.output)
        else:
            narrow.update(_narrow_outputs(node, opsets, narrow))
    narrow.discard("")


def _narrow_outputs(node: onnx.NodeProto, opsets: Mapping[str, int], known: Iterable[str]) -> list[str]:
    """Return the outputs whose type, by the operator's definition, is that of a narrow input."""
    narrow_inputs = [name in known for name in node.input]
    if not any(narrow_inputs):
        return []
    domain = node.domain if node.domain != "ai.onnx" else ""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except (onnx.defs.SchemaError, TypeError):  # a version beyond 32 bits is a TypeError
        return list(node.output[:1])  # ONNX Runtime's own operators: outputs have the type of the inputs
    types = {
        schema.inputs[min(position, len(schema.inputs) - 1)].type_str
        for position, narrow in enumerate(narrow_inputs)
        if narrow and schema.inputs
    }
    return [
        name
        for position, name in enumerate(node.output)
        if schema.outputs[min(position, len(schema.outputs) - 1)].type_str in types
    ]


def _with_rounding(node: onnx.NodeProto, narrow: frozenset[str]) -> list[onnx.NodeProto]:
    """Return a node, followed by nodes that round its results."""
    inner = any(attribute.HasField("g") for attribute in node.attribute)  # its branches have rounded already
    rounded = [name for name in node.output if name in narrow and not inner]
    casts = []
    for name in rounded:
        exact, short = f"{name} before rounding", f"{name} rounded"
        if node.op_type == "Cast":
            short, exact = exact, ""  # it rounds its result itself
        else:
            casts.append(helper.make_node("Cast", [exact], [short], to=_NARROW))
        casts.append(helper.make_node("Cast", [short], [name], to=_WIDE))
        for position, output in enumerate(node.output):
            if output == name:
                node.output[position] = exact or short
    return [node, *casts]


def _without_rounding(node: onnx.NodeProto) -> onnx.NodeProto:
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i == _NARROW:
            attribute.i = _WIDE
    return node


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == _NARROW:
        name, values = tensor.name, numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
