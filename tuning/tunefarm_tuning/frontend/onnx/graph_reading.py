"""Read a model's graph: nodes and inner graphs, constants, the names that nodes read, what tensors are computed of; and its opsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx
from onnx import TensorProto

ONNX_DOMAINS = ("", "ai.onnx")
"""The names of ONNX's own domain."""
_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip


def domain_of(name: str) -> str:
    """Return the name of a domain; of ONNX's own, which has two, ``""``."""
    return "" if name in ONNX_DOMAINS else name


def opsets_of(model: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return the opset of each domain, named as by `domain_of`, that a model or a function is written in."""
    return {domain_of(entry.domain): entry.version for entry in model.opset_import}


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside its nodes' attributes (protobuf itself limits the depth)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_graphs(attribute.g)
            for inner in attribute.graphs:
                yield from all_graphs(inner)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the graphs inside their attributes."""
    for subgraph in all_graphs(graph):
        yield from subgraph.node


def names_read(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, each once: its inputs, and what the graphs in its attributes take from outside."""
    return list(dict.fromkeys(name for name in _reads(node) if name))


def weights_of(graph: onnx.GraphProto) -> set[str]:
    """Return the names of a graph's initialisers, the sparse ones too."""
    return {tensor.name for tensor in graph.initializer} | {
        tensor.values.name for tensor in graph.sparse_initializer
    }


def constant_nodes(graph: onnx.GraphProto) -> set[int]:
    """Return the positions of the nodes that read nothing but initialisers and each other: their results never change."""
    known = weights_of(graph)
    positions = set()
    for position, node in enumerate(graph.node):
        if node.op_type not in _RANDOM and all(name in known for name in names_read(node)):
            positions.add(position)
            known.update(node.output)
    return positions


def constant_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield the tensors that a graph holds, and the names under which nodes read them."""
    for subgraph in all_graphs(graph):
        yield from ((tensor.name, tensor) for tensor in subgraph.initializer)
        for node in subgraph.node:
            if node.op_type == "Constant" and node.output:
                yield from ((node.output[0], a.t) for a in node.attribute if a.HasField("t"))


def ancestors(graph: onnx.GraphProto, names: Iterable[str], *, not_through: Collection[str] = ()) -> set[str]:
    """Return the names of all tensors that some are computed of, theirs included.

    Args:
        graph: The network.
        names: The tensors.
        not_through: Operators whose operands do not count.
    """
    producers = {
        name: node for subgraph in all_graphs(graph) for node in subgraph.node for name in node.output
    }
    left = list(names)
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name and name not in seen:
            seen.add(name)
            producer = producers.get(name)
            left += () if producer is None or producer.op_type in not_through else producer.input
    return seen


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            inner_names = {value.name for value in graph.input} | weights_of(graph)
            inner_names.update(name for inner in graph.node for name in inner.output)
            for inner in graph.node:
                yield from (name for name in _reads(inner) if name not in inner_names)
            yield from (value.name for value in graph.output if value.name not in inner_names)
