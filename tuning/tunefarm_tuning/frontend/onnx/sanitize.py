"""Preparing a bound network for the importer: a stranger's names and texts are removed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import all_graphs, all_nodes, constant_tensors

PART_DOMAIN, PART_OPERATOR = "tunefarm", "RunPart"
"""The node that stands for a part of the network which ONNX Runtime runs (`parts.cut`); no file may have it."""
_COUNTED_OUTPUTS = frozenset({"Split", PART_OPERATOR})
"""Operators whose results depend on how many outputs they list."""
FEW_BITS = {TensorProto.INT4: np.dtype(np.int8), TensorProto.UINT4: np.dtype(np.uint8)}
"""Types of weights that share bytes, and those that hold one each."""


def sanitize_model(model: onnx.ModelProto) -> list[str]:
    """Replace every name in a bound network's model, in place.

    Tensors become ``t0``, ``t1``, ...; nodes ``n0``, ``n1``, ... in the order of `all_nodes`. TVM makes identifiers of
    names and computes with those of dimensions; strangers must not control either. Inferred shapes and texts go.

    Returns:
        The nodes' old names by new number; the tensors' are not kept.
    """
    graph = model.graph
    for field in ("doc_string", "producer_name", "producer_version", "domain"):
        model.ClearField(field)
    del model.metadata_props[:]
    _drop_unused_outputs(graph)
    if are_dequantised(graph):
        _give_bytes(graph)
    old_names = [node.name for node in all_nodes(graph)]
    rename(graph, {})
    for number, node in enumerate(all_nodes(graph)):
        node.name = f"n{number}"
    return old_names


def are_dequantised(graph: onnx.GraphProto) -> bool:
    """Return whether nodes read tensors of few bits only to make floats of them."""
    names = {name for name, tensor in constant_tensors(graph) if tensor.data_type in FEW_BITS}
    is_read = any(
        node.op_type != "DequantizeLinear" and names.intersection(node.input) for node in all_nodes(graph)
    )
    return not is_read and not any(
        value.name in names for subgraph in all_graphs(graph) for value in subgraph.output
    )


def _give_bytes(graph: onnx.GraphProto) -> None:
    for name, tensor in constant_tensors(graph):
        if tensor.data_type in FEW_BITS:
            values = numpy_helper.to_array(tensor).astype(FEW_BITS[tensor.data_type])
            tensor.CopyFrom(numpy_helper.from_array(values, name))


def name_nodes_apart(graph: onnx.GraphProto) -> None:
    """Give every node but the first of a name another one, in place: a graph's nodes must have different names."""
    taken = {node.name for node in all_nodes(graph)}
    seen: set[str] = set()
    copies: Counter[str] = Counter()
    for node in all_nodes(graph):
        stem = node.name
        while node.name and node.name in (seen if node.name == stem else taken):
            copies[stem] += 1
            node.name = f"{stem}/{copies[stem]}"
        taken.add(node.name)
        seen.add(node.name)


def _drop_unused_outputs(graph: onnx.GraphProto) -> None:
    """Remove trailing outputs that nothing reads: a mask, indices or statistics that the importer cannot compute."""
    graphs = list(all_graphs(graph))
    read = {name for subgraph in graphs for node in subgraph.node for name in node.input}
    read |= {value.name for subgraph in graphs for value in subgraph.output}
    for subgraph in graphs:
        for node in subgraph.node:
            while (
                len(node.output) > 1 and node.output[-1] not in read and node.op_type not in _COUNTED_OUTPUTS
            ):
                node.output.pop()


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Replace each name by one of ours. One table serves all graphs: equal names stay equal, others stay apart."""

    def new(name: str) -> str:
        return (
            names.setdefault(name, f"t{len(names)}") if name else ""
        )  # an empty name means that the value is left out

    for subgraph in all_graphs(graph):
        subgraph.name = "graph"
        subgraph.ClearField("doc_string")
        del subgraph.value_info[:]
        del subgraph.quantization_annotation[:]
        del subgraph.metadata_props[:]
        for value in (*subgraph.input, *subgraph.output):
            value.name = new(value.name)
            value.ClearField("doc_string")
        for value in subgraph.output:
            # The file's shapes of its outputs may be wrong or open; TVM infers them.
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")
        for tensor in subgraph.initializer:
            tensor.name = new(tensor.name)
            tensor.ClearField("doc_string")
        for sparse in subgraph.sparse_initializer:
            sparse.values.name = new(sparse.values.name)
        for node in subgraph.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]
            for tensors in (node.input, node.output):
                tensors[:] = [new(name) for name in tensors]
