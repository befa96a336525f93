"""The order of nodes: ONNX wants each behind those whose results it reads. ONNX Runtime does not, and some tools write none."""

from __future__ import annotations

import heapq

import onnx

from tunefarm_tuning.frontend.onnx.graph_reading import all_graphs, names_read


def put_in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the nodes of a model and of its inner graphs in order, as few as can be; the model is changed, and returned.

    A graph with a circle stays as it is: ONNX's checker refuses it.
    """
    for graph in all_graphs(model.graph):
        order = _order(graph)
        if order != sorted(order):
            nodes = [graph.node[position] for position in order]
            ordered = onnx.GraphProto(node=nodes)  # copies: the graph's own go with the next line
            del graph.node[:]
            graph.node.extend(ordered.node)
    return model


def _order(graph: onnx.GraphProto) -> list[int]:
    """Return the positions of nodes, each behind those that it reads, else as they stand; all as they stand if they form a circle."""
    maker = {name: position for position, node in enumerate(graph.node) for name in node.output if name}
    waits: dict[int, set[int]] = {}
    readers: dict[int, list[int]] = {}
    for position, node in enumerate(graph.node):
        waits[position] = {maker[name] for name in names_read(node) if name in maker}
        for before in waits[position]:
            readers.setdefault(before, []).append(position)
    free = [position for position, before in waits.items() if not before]
    order: list[int] = []
    while free:
        position = heapq.heappop(free)
        order.append(position)
        for reader in readers.get(position, ()):
            waits[reader].discard(position)
            if not waits[reader]:
                heapq.heappush(free, reader)
    return order if len(order) == len(graph.node) else list(range(len(graph.node)))
