"""The names that nodes read, and the nodes of a graph that compute constants."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip


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


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            inner_names = {value.name for value in graph.input} | weights_of(graph)
            inner_names.update(name for inner in graph.node for name in inner.output)
            for inner in graph.node:
                yield from (name for name in _reads(inner) if name not in inner_names)
            yield from (value.name for value in graph.output if value.name not in inner_names)
