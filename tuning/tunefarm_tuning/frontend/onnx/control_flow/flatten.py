"""Replace a network's `If`, `Loop` and `Scan` by the nodes of their inner graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.control_flow.branches import resolve_if
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import FlatGraph
from tunefarm_tuning.frontend.onnx.control_flow.loops import unroll_loop
from tunefarm_tuning.frontend.onnx.control_flow.scans import unroll_scan
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, all_nodes, names_read
from tunefarm_tuning.frontend.onnx.sanitize import name_nodes_apart

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_NOBODY_RUNS = ("invalid-onnx", "too-many-steps")
"""The codes of control flow that ONNX Runtime cannot run either."""


def has_control_flow(graph: onnx.GraphProto) -> bool:
    """Return whether a graph has an `If`, `Loop` or `Scan`."""
    return any(is_control_flow(node) for node in all_nodes(graph))


def is_control_flow(node: onnx.NodeProto) -> bool:
    """Return whether a node is an `If`, `Loop` or `Scan`."""
    return node.op_type in CONTROL_FLOW and node.domain in ONNX_DOMAINS


def flatten_control_flow(model: onnx.ModelProto) -> list[InvalidModelError]:
    """Replace the control flow of a bound network, in place.

    A branch whose condition is known is taken. Of one that the run decides both branches are computed, and the run selects
    (see `resolve_if`). Loops of known length are unrolled. Equal networks become equal networks.

    Returns:
        Why each node that is left cannot be replaced: unsupported-operator, unequal-branches, unknown-loop, zero-size or
        too-large. Such a node cannot be compiled.

    Raises:
        InvalidModelError: invalid-onnx or too-many-steps, or too-large of the whole.
    """
    flat = FlatGraph(model)
    scope = _Scope(flat, {}, is_whole=True)
    left = []
    for node in list(model.graph.node):
        checkpoint = flat.checkpoint()
        try:
            scope.add(node)
        except InvalidModelError as error:
            if not is_control_flow(node) or error.code in _NOBODY_RUNS:
                raise
            left.append(error)
            flat.back_to(checkpoint)  # what was unrolled of it counts no more
            scope.keep(node)
    flat.replace_graph([scope.name(value.name) for value in model.graph.output])
    name_nodes_apart(model.graph)
    return left


class _Scope:
    """The names that a graph sees, and those of the tensors of `flat` that they mean."""

    def __init__(self, flat: FlatGraph, names: Mapping[str, str], *, is_whole: bool = False) -> None:
        self._flat = flat
        self._names = dict(names)
        self._is_whole = is_whole

    def name(self, name: str) -> str:
        return self._names.get(name, name)

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node of the graph, or what it stands for."""
        inputs = [self.name(name) for name in node.input]
        if is_control_flow(node):
            resolve = {"If": resolve_if, "Loop": unroll_loop, "Scan": unroll_scan}[node.op_type]
            results = resolve(self._flat, node, inputs, self._inline)
            self._names.update((old, new) for old, new in zip(node.output, results, strict=False) if old)
            return
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:]
        copy.input.extend(inputs)
        for name in node.output:
            if name and not self._is_whole:
                self._names[name] = self._flat.new_name(name)
            copy.output.append(self.name(name))
        self._flat.add(copy)

    def keep(self, node: onnx.NodeProto) -> None:
        """Add a node of the graph with its inner graphs, which read tensors of `flat` under the names of the graph."""
        for name in names_read(node):
            if self.name(name) != name:
                alias = onnx.helper.make_node(
                    "Identity", [self._names.pop(name)], [name], name=f"{name}/kept"
                )
                self._flat.add(alias)
        self._flat.keep(node)

    def _inline(self, graph: onnx.GraphProto, arguments: Sequence[str]) -> list[str]:
        """Add the nodes of an inner graph; return the names of its outputs."""
        if len(arguments) != len(graph.input) or graph.sparse_initializer:
            raise InvalidModelError(
                f"an inner graph ('{clean(graph.name, 60)}') takes {len(graph.input)} inputs, but gets {len(arguments)}",
                code="invalid-onnx",
            )
        names = {
            **self._names,
            **{value.name: name for value, name in zip(graph.input, arguments, strict=True)},
        }
        for tensor in graph.initializer:
            names[tensor.name] = self._flat.new_name(tensor.name)
            self._flat.add_tensor(tensor, names[tensor.name])
        scope = _Scope(self._flat, names)
        for node in graph.node:
            scope.add(node)
        return [scope.name(value.name) for value in graph.output]
