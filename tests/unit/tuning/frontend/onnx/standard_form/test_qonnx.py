"""QONNX's quantisers become nodes of ONNX that compute what its specification says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.frontend.onnx.standard_form import qonnx
from tunefarm_tuning.frontend.onnx.standard_form.form import in_standard_form

ROUNDINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "ROUND": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.fix,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}
X = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32) * 3
X[:, :20] = np.arange(-10, 10, dtype=np.float32) / 8  # ties of a step of 1/4
PER_ROW = np.array([[0.25], [0.5], [0.125]], np.float32)


def model_of(
    operator: str,
    *parameters: Any,
    x: NDArray[Any] | None = None,
    opset: int = 13,
    domain: str = "onnx.brevitas",
    **attributes: Any,
) -> onnx.ModelProto:
    """Return the model of one quantiser and a sum; its first input is a weight if there is an `x`."""
    known = {f"p{number}": np.asarray(value, np.float32) for number, value in enumerate(parameters)}
    if x is not None:
        known["x"] = x
    nodes = [
        helper.make_node(
            operator, ["x", *(f"p{n}" for n in range(len(parameters)))], ["q"], domain=domain, **attributes
        ),
        helper.make_node("Add", ["q", "zeros"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in ("x", "zeros", "y")]
    weights = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", values[x is not None : 2], values[2:], weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto) -> NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(in_standard_form(model).SerializeToString(), options)
    feeds = {"x": X, "zeros": np.zeros_like(X)}
    result: NDArray[Any] = session.run(
        None, {given.name: feeds[given.name] for given in session.get_inputs()}
    )[0]
    return result


def quantised(scale: Any, zero: float, bits: int, *, signed: int, narrow: int, mode: str) -> NDArray[Any]:
    """Return what the specification says of `X`."""
    steps = X / np.float32(scale) + np.float32(zero)
    if bits == 1 and signed:
        steps = np.where(steps >= 0, 1, -1)
    else:
        low, high = (
            (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
        )
        steps = ROUNDINGS[mode](np.clip(steps, low, high))
    return ((steps - zero) * scale).astype(np.float32)


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_quantisers_of_activations_and_of_weights(mode: str) -> None:
    widths = ((1, 0), (4, 1), (8, 0), (8, 1), (12, 0))
    for (bits, narrow), signed, scale, zero in product(widths, (0, 1), (0.25, PER_ROW), (0, 1)):
        attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        expected = quantised(scale, zero, bits, signed=signed, narrow=narrow, mode=mode)
        for x in (None, X):
            model = model_of("Quant", scale, zero, bits, x=x, **attributes)
            np.testing.assert_array_equal(run(model), expected, err_msg=str((bits, zero, scale, attributes)))


@pytest.mark.parametrize("opset", [9, 10, 13])
def test_activations_of_8_bits_are_quantised_as_by_onnx(opset: int) -> None:
    model = in_standard_form(model_of("Quant", 0.25, 0, 8, opset=opset))
    assert [node.op_type for node in model.graph.node] == ["QuantizeLinear", "DequantizeLinear", "Add"]
    np.testing.assert_array_equal(run(model), quantised(0.25, 0, 8, signed=1, narrow=0, mode="ROUND"))


def test_weights_of_few_bits_are_stored_in_bytes() -> None:
    model = in_standard_form(model_of("IntQuant", PER_ROW, 0, 4, x=X, domain="qonnx.custom_op.general"))
    assert [node.op_type for node in model.graph.node] == ["DequantizeLinear", "Add"]
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert stored[model.graph.node[0].input[0]] == TensorProto.INT8


def repeated(model: onnx.ModelProto, count: int, **changes: Any) -> onnx.ModelProto:
    """Return a model with further quantisers of the same inputs; each has other attributes if a list of them is given."""
    for number in range(count):
        node = model.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        node.output[0] = f"q{number}"
        for name, values in changes.items():
            node.attribute.append(helper.make_attribute(name, values[number]))
    return model


@pytest.mark.parametrize(("operator", "parameters"), [("Quant", (PER_ROW, 0, 4)), ("BipolarQuant", (0.5,))])
def test_quantisers_of_one_weight_store_it_once(operator: str, parameters: tuple[Any, ...]) -> None:
    model = in_standard_form(repeated(model_of(operator, *parameters, x=X), 20))
    stored = [tensor.name for tensor in model.graph.initializer if np.prod(tensor.dims) == X.size]
    assert len(stored) == (2 if operator == "Quant" else 1)


def test_a_weight_is_not_stored_for_each_of_many_other_quantisers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qonnx, "_SPARE_BYTES", 0)
    modes = ["CEIL", "FLOOR", "UP", "DOWN"]
    model = repeated(model_of("Quant", 0.25, 0, 4, x=X), len(modes), rounding_mode=modes)
    left = [node.output[0] for node in in_standard_form(model).graph.node if node.op_type == "Quant"]
    assert left == ["q1", "q2", "q3"], "twice the size of the constants may be quantised"


def test_a_zero_point_in_a_list_of_its_own() -> None:
    model = model_of("Quant", 0.25, [2], 4, x=X)
    expected = quantised(0.25, 2, 4, signed=1, narrow=0, mode="ROUND")
    np.testing.assert_array_equal(run(model), expected)


@pytest.mark.parametrize("operator", ["Quant", "Constant"])
def test_nodes_without_outputs_are_left_to_the_checker(operator: str) -> None:
    model = model_of("Quant", 0.25, 0, 8)
    node = model.graph.node.add()
    node.CopyFrom(helper.make_node(operator, [], [], domain="onnx.brevitas" if operator == "Quant" else ""))
    assert in_standard_form(model).graph.node[-1] == node


def test_signs_and_truncation() -> None:
    for scale in (0.5, -0.5):
        expected = np.where(X / np.float32(scale) >= 0, scale, -scale).astype(np.float32)
        np.testing.assert_array_equal(run(model_of("BipolarQuant", scale)), expected)
    expected = np.floor(np.round(X / np.float32(0.25)) / 4) * np.float32(0.25)
    np.testing.assert_array_equal(run(model_of("Trunc", 0.25, 0, 8, 6)), expected)


@pytest.mark.parametrize(
    "model",
    [
        model_of("Quant", 0.25, 0, 8, rounding_mode="SOMEHOW"),
        model_of("Quant", 0.25, 0, 8, rounding_mode="FLOOR", opset=9),
        model_of("BipolarQuant", 0.5, opset=8),
        model_of("Quant", 0.25, 0),
        model_of("Quant", 0.25, 0, 8, domain="my.own"),
        model_of("Quant", 0.25, 0, 8, rounding_mode=1),
        model_of("Quant", 0.25, 0, []),
        model_of("Quant", np.ones((50, 1, 1)), 0, 8, x=X),
        model_of("Quant", np.ones(7), 0, 8, x=X),
    ],
    ids=["mode", "opset", "signs", "bits", "domain", "number", "no bits", "larger", "other shape"],
)
def test_what_cannot_be_expressed_stays(model: onnx.ModelProto) -> None:
    first = model.graph.node[0].op_type
    assert [node.op_type for node in in_standard_form(model).graph.node] == [first, "Add"]
