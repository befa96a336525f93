"""Preparing a bound network for the importer: a stranger's names and texts are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

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
    return not is_read and not any(value.name in names for part in all_graphs(graph) for value in part.output)


def _give_bytes(graph: onnx.GraphProto) -> None:
    for name, tensor in constant_tensors(graph):
        if tensor.data_type in FEW_BITS:
            values = numpy_helper.to_array(tensor).astype(FEW_BITS[tensor.data_type])
            tensor.CopyFrom(numpy_helper.from_array(values, name))


def constant_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield the tensors that a graph holds, and the names under which nodes read them."""
    for part in all_graphs(graph):
        yield from ((tensor.name, tensor) for tensor in part.initializer)
        for node in part.node:
            if node.op_type == "Constant":
                yield from ((node.output[0], a.t) for a in node.attribute if a.HasField("t"))


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the graphs inside their attributes."""
    for part in all_graphs(graph):
        yield from part.node


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside its nodes' attributes (protobuf itself limits the depth)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_graphs(attribute.g)
            for inner in attribute.graphs:
                yield from all_graphs(inner)


def ancestors(graph: onnx.GraphProto, names: Iterable[str], *, not_through: Collection[str] = ()) -> set[str]:
    """Return the names of all tensors that some are computed of, theirs included.

    Args:
        graph: The network.
        names: The tensors.
        not_through: Operators whose operands do not count.
    """
    producers = {name: node for part in all_graphs(graph) for node in part.node for name in node.output}
    left = list(names)
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name and name not in seen:
            seen.add(name)
            producer = producers.get(name)
            left += () if producer is None or producer.op_type in not_through else producer.input
    return seen


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
    read = {name for part in graphs for node in part.node for name in node.input}
    read |= {value.name for part in graphs for value in part.output}
    for part in graphs:
        for node in part.node:
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

    for part in all_graphs(graph):
        part.name = "graph"
        part.ClearField("doc_string")
        del part.value_info[:]
        del part.quantization_annotation[:]
        del part.metadata_props[:]
        for value in (*part.input, *part.output):
            value.name = new(value.name)
            value.ClearField("doc_string")
        for value in part.output:
            # The file's shapes of its outputs may be wrong or open; TVM infers them.
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")
        for tensor in part.initializer:
            tensor.name = new(tensor.name)
            tensor.ClearField("doc_string")
        for sparse in part.sparse_initializer:
            sparse.values.name = new(sparse.values.name)
        for node in part.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]
            for tensors in (node.input, node.output):
                tensors[:] = [new(name) for name in tensors]
