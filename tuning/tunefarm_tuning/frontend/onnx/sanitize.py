"""Preparing a bound network for the importer: a stranger's names and texts are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

PART_DOMAIN, PART_OPERATOR = "tunefarm", "RunPart"
"""The node that stands for a part of the network which ONNX Runtime runs (`parts.cut`); no file may have it."""
_COUNTED_OUTPUTS = frozenset({"Split", PART_OPERATOR})
"""Operators whose results depend on how many outputs they list."""


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
    old_names = [node.name for node in all_nodes(graph)]
    rename(graph, {})
    for number, node in enumerate(all_nodes(graph)):
        node.name = f"n{number}"
    return old_names


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
