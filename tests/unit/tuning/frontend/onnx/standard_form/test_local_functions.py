"""Functions of a model's own, against ONNX Runtime, which runs them as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.standard_form.local_functions import check_functions, inline_functions

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
X = np.linspace(-4, 4, 8, dtype=np.float32).reshape(2, 4)


def function(
    name: str, nodes: Sequence[NodeProto], inputs: Sequence[str] = ("a",), **options: Any
) -> FunctionProto:
    return helper.make_function("mine", name, inputs, ["b"], nodes, options.pop("opsets", OPSETS), **options)


def call(name: str, inputs: str = "x", output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(name, inputs.split(), [output], domain="mine", **attributes)


def model(nodes: Sequence[NodeProto], *functions: FunctionProto) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


def referring(node: NodeProto, name: str, attribute: str) -> NodeProto:
    """Return a node that takes an attribute from the function that it is in."""
    node.attribute.append(AttributeProto(name=name, ref_attr_name=attribute, type=AttributeProto.FLOAT))
    return node


def leaky(result: str = "b") -> NodeProto:
    return referring(helper.make_node("LeakyRelu", ["a"], [result]), "alpha", "slope")


def twice() -> FunctionProto:
    return function("Twice", [helper.make_node("Add", ["a", "a"], ["b"])])


def nested() -> onnx.ModelProto:
    four = function("Four", [call("Twice", "a", "t"), call("Twice", "t", "b")])
    return model([call("Four", "x", "a"), call("Four", "a", "y")], four, twice())


def with_default(**given: float) -> onnx.ModelProto:
    default = helper.make_attribute("slope", 0.7)
    return model([call("Leaky", **given)], function("Leaky", [leaky()], attribute_protos=[default]))


def branches() -> onnx.ModelProto:
    o, p = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "op")
    body = [
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=0),
        helper.make_node("Constant", [], ["most"], value_float=100.0),
        helper.make_node("Greater", ["sum", "most"], ["is_more"]),
        helper.make_node(
            "If",
            ["is_more"],
            ["b"],
            then_branch=helper.make_graph([call("Twice", "a", "o")], "then", [], [o]),
            else_branch=helper.make_graph([leaky("p")], "else", [], [p]),
        ),
    ]
    return model([call("Either", slope=0.25)], function("Either", body, attributes=["slope"]), twice())


def left_out_input() -> onnx.ModelProto:
    clip = function("Between", [helper.make_node("Clip", ["a", "low", "high"], ["b"])], ["a", "low", "high"])
    return model(
        [helper.make_node("Constant", [], ["half"], value_float=0.5), call("Between", "x half")], clip
    )


def other_domain() -> onnx.ModelProto:
    gelu = helper.make_node("FastGelu", ["a"], ["b"], domain="com.microsoft")
    opsets = [*OPSETS, helper.make_opsetid("com.microsoft", 1)]
    return model([call("Gelu")], function("Gelu", [gelu], opsets=opsets))


def overloads() -> onnx.ModelProto:
    negated = function("Twice", [helper.make_node("Neg", ["a"], ["b"])], overload="negated")
    plain = twice()
    plain.overload = "plain"
    return model(
        [call("Twice", "x", "t", overload="plain"), call("Twice", "t", "y", overload="negated")],
        plain,
        negated,
    )


def names_of_the_caller() -> onnx.ModelProto:
    shadow = helper.make_function(
        "mine", "Shadow", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])],
        OPSETS,
    )  # fmt: skip
    return model([call("Shadow", "x", "t"), call("Shadow", "t", "y")], shadow)


def of_another_opset_and_no_known_type() -> onnx.ModelProto:
    """ONNX knows no type of what ONNX Runtime's operator computes, without which it converts no body."""
    older = function(
        "Double", [helper.make_node("Add", ["a", "a"], ["b"])], opsets=[helper.make_opsetid("", 13)]
    )
    gelu = helper.make_node("QuickGelu", ["x"], ["t"], domain="com.microsoft")
    network = model([gelu, call("Double", "t")], older)
    network.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return network


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "nested": nested,
    "a default": with_default,
    "another value than the default": lambda: with_default(slope=0.2),
    "an attribute that is left out": lambda: model(
        [call("Leaky")], function("Leaky", [leaky()], attributes=["slope"])
    ),
    "branches": branches,
    "an input that is left out": left_out_input,
    "operators of another domain": other_domain,
    "overloads": overloads,
    "names of the caller": names_of_the_caller,
    "other opset, no known type": of_another_opset_and_no_known_type,
    "never called": lambda: model([helper.make_node("Relu", ["x"], ["y"])], twice()),
}


def run(network: onnx.ModelProto) -> Any:
    return onnxruntime.InferenceSession(network.SerializeToString()).run(None, {"x": X})[0]


@pytest.mark.parametrize("case", MODELS)
def test_calls_give_way_to_bodies(case: str) -> None:
    network = MODELS[case]()
    expected = run(network)
    check_functions(network, max_nodes=100)
    inlined = inline_functions(network)
    assert not inlined.functions
    assert not any(node.domain == "mine" for node in inlined.graph.node)
    np.testing.assert_array_equal(run(inlined), expected)


def test_a_body_of_an_older_opset_is_converted() -> None:
    # ONNX Runtime itself refuses this one: Unsqueeze takes its axes from an attribute in opset 11, from an input in 17.
    body = [helper.make_node("Unsqueeze", ["a"], ["t"], axes=[0]), helper.make_node("Softmax", ["t"], ["b"])]
    old = function("Softmax3", body, opsets=[helper.make_opsetid("", 11)])
    network = model([call("Softmax3", "x", "t"), helper.make_node("Reshape", ["t", "to"], ["y"])], old)
    network.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 4]), "to"))
    exponents = np.exp(X - X.max())  # Softmax of opset 11 normalises over all dimensions from the first on
    np.testing.assert_allclose(run(inline_functions(network)), exponents / exponents.sum(), rtol=1e-6)


def doubling(levels: int, body: Sequence[NodeProto] = ()) -> onnx.ModelProto:
    functions = [function("F0", [*body, helper.make_node("Add", ["a", "a"], ["b"])])]
    functions += [
        function(f"F{n}", [call(f"F{n - 1}", "a", "t"), call(f"F{n - 1}", "t", "b")])
        for n in range(1, levels + 1)
    ]
    return model([call(f"F{levels}")], *functions)


def heavy() -> onnx.ModelProto:
    """Return a model of a few nodes, which is 64 GiB large without its functions."""
    weight = onnx.numpy_helper.from_array(np.ones(2**20, np.float32))
    return doubling(14, [helper.make_node("Constant", [], ["weight"], value=weight)])


def passed_on() -> onnx.ModelProto:
    inner = with_default().functions[0]
    outer = function("Outer", [referring(call("Leaky", "a", "b"), "slope", "own")], attributes=["own"])
    return model([call("Outer")], inner, outer)


@pytest.mark.parametrize(
    ("network", "code", "message"),
    [
        (model([call("F")], function("F", [call("F", "a", "b")])), "invalid-onnx", "themselves: 'mine.F' -> 'mine.F'"),
        (doubling(40), "too-large", "has 1099511627776 nodes; the limit is 100000"),
        (heavy(), "too-large", "bytes; protobuf's limit is 2147483647"),
        (model([call("Twice")], twice(), twice()), "invalid-onnx", "two functions called 'mine.Twice'"),
        (model([call("Twice", "x x")], twice()), "invalid-onnx", "calls function 'mine.Twice' with 2 inputs; it has 1"),
        (passed_on(), "unsupported-operator", "passes its own attribute on as 'slope'"),
    ],
    ids=["itself", "nodes", "bytes", "names", "inputs", "default"],
)  # fmt: skip
def test_what_cannot_be_inlined_is_refused(network: onnx.ModelProto, code: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message) as refused:
        check_functions(network, max_nodes=100_000)
    assert refused.value.code == code
