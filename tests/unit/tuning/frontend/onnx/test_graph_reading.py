"""Reading a graph: its opsets, constants and names, those of inner graphs too."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import (
    all_nodes,
    ancestors,
    constant_nodes,
    constant_tensors,
    names_read,
    opsets_of,
)


def constant(name: str) -> onnx.NodeProto:
    value = numpy_helper.from_array(np.ones(2, np.float32))
    return helper.make_node("Constant", [], [name], value=value)


def branching() -> onnx.GraphProto:
    """Return ``y = x + w if c else -inner``, where `inner` is a constant of a branch."""
    scalar = helper.make_tensor_value_info
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["sum"])],
            "then",
            [],
            [scalar("sum", TensorProto.FLOAT, [2])],
        ),
        "else_branch": helper.make_graph(
            [constant("inner"), helper.make_node("Neg", ["inner"], ["negative"])],
            "else",
            [],
            [scalar("negative", TensorProto.FLOAT, [2])],
        ),
    }
    nodes = [
        constant("one"),
        helper.make_node("Exp", ["one"], ["w"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    inputs = [scalar("x", TensorProto.FLOAT, [2]), scalar("c", TensorProto.BOOL, [])]
    weight = numpy_helper.from_array(np.ones(1, np.float32), "unread")
    return helper.make_graph(nodes, "g", inputs, [scalar("y", TensorProto.FLOAT, [2])], [weight])


def test_a_node_reads_what_its_inner_graphs_take_from_outside() -> None:
    branch = branching().node[2]
    assert set(names_read(branch)) == {"c", "x", "w"}


def test_constants_are_weights_and_nodes_of_any_graph_inside() -> None:
    graph = branching()
    graph.node.append(helper.make_node("Constant", [], []))  # malformed: ONNX's checker refuses it later
    assert {name for name, _ in constant_tensors(graph)} == {"unread", "one", "inner"}
    assert [node.op_type for node in all_nodes(graph)].count("Constant") == 3


def test_nodes_of_constants_and_of_each_other_are_constant() -> None:
    assert constant_nodes(branching()) == {0, 1}


def test_a_tensor_comes_of_its_inputs_but_not_through_operators_that_read_no_value() -> None:
    graph = branching()
    assert ancestors(graph, ["sum"]) == {"sum", "x", "w", "one"}
    assert ancestors(graph, ["sum"], not_through=["Exp"]) == {"sum", "x", "w"}


def test_onnxs_own_domain_has_two_names_and_one_opset() -> None:
    for name in ("", "ai.onnx"):
        imports = [helper.make_opsetid(name, 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(branching(), opset_imports=imports)
        assert opsets_of(model) == {"": 17, "com.microsoft": 1}
