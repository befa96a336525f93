"""Nodes that a tool wrote in no order."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import GraphBuilder, branching

from tunefarm_tuning.frontend.onnx.graph_reading import all_graphs
from tunefarm_tuning.frontend.onnx.standard_form.node_order import put_in_order


def chain() -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.input("x", [2])
    for _ in range(3):
        x = g.node("Relu", x)
    g.output(g.node("Add", x, "x"), [2])
    return g.model()


@pytest.mark.parametrize("build", [chain, branching])
def test_nodes_are_put_behind_those_whose_results_they_read(build: object) -> None:
    model = build()  # type: ignore[operator]
    before = model.SerializeToString(deterministic=True)
    assert put_in_order(model).SerializeToString(deterministic=True) == before
    for graph in all_graphs(model.graph):
        nodes = onnx.GraphProto(node=reversed(graph.node))
        del graph.node[:]
        graph.node.extend(nodes.node)
    with pytest.raises(onnx.checker.ValidationError, match="topologically sorted"):
        onnx.checker.check_model(model)
    onnx.checker.check_model(put_in_order(model))


def test_a_circle_stays_as_it_is() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    model = helper.make_model(helper.make_graph(nodes, "circle", [value], [value]))
    before = model.SerializeToString(deterministic=True)
    assert put_in_order(model).SerializeToString(deterministic=True) == before
