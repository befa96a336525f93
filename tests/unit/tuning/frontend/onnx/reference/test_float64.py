"""Networks in float64: they compute the same, with less rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_zoo
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.reference.float64 import in_float64
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session
from tunefarm_tuning.reference.random_inputs import random_inputs


def outputs_of(model: onnx.ModelProto, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    session: onnxruntime.InferenceSession = open_session(model.SerializeToString(), 1, optimised=False)
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(output) for output in session.run(None, dict(zip(names, inputs, strict=True)))]


def check(model: onnx.ModelProto) -> onnx.ModelProto:
    specs = bind_inputs(model.graph, {})
    inputs = random_inputs(specs, seed=3)
    twin = in_float64(model, specs)
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs]
    for narrow, exact in zip(outputs_of(model, inputs), outputs_of(twin, wide), strict=True):
        half = narrow.dtype == np.float16
        assert exact.dtype == (np.float64 if half or narrow.dtype == np.float32 else narrow.dtype)
        share = 2e-2 if half else 1e-4
        np.testing.assert_allclose(narrow, exact, rtol=share, atol=share)
    return twin


@pytest.mark.parametrize("name", onnx_zoo.names())
def test_networks_compute_the_same(name: str) -> None:
    check(onnx_zoo.build(name, onnx_zoo.opsets(name)[-1]))


@pytest.mark.parametrize(
    ("weight", "attributes"),
    [
        ((4, 6, 3, 3), {}),
        ((4, 6, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((4, 6, 3, 2), {"dilations": [2, 3], "auto_pad": "VALID"}),
        ((4, 6, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((4, 6, 2, 2), {"auto_pad": "SAME_LOWER"}),
        ((6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
        ((6, 2, 1, 1), {"group": 3, "strides": [3, 2]}),
        ((12, 1, 1, 1), {"group": 6}),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_are_computed_in_float64(
    weight: tuple[int, ...], attributes: dict[str, Any], bias: bool
) -> None:
    g = GraphBuilder()
    x = g.input("x", [2, 6, 11, 13])
    inputs = [x, g.weight(*weight), *([g.weight(weight[0])] if bias else [])]
    g.output(g.node("Conv", *inputs, **attributes))
    twin = check(g.model())
    assert not any(node.op_type in ("Conv", "Cast") for node in twin.graph.node)


@pytest.mark.parametrize(("shape", "weight"), [((1, 3, 40), (5, 3, 7)), ((1, 2, 5, 6, 7), (3, 2, 3, 3, 3))])
def test_convolutions_over_one_and_three_axes(shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    g = GraphBuilder()
    g.output(g.node("Conv", g.input("x", shape), g.weight(*weight), pads=[1] * (2 * (len(shape) - 2))))
    assert not any(node.op_type == "Conv" for node in check(g.model()).graph.node)


@pytest.mark.parametrize(
    "operator", ["LeakyRelu", "HardSigmoid", "HardSwish", "GlobalAveragePool", "Sigmoid"]
)
def test_operators_are_written_with_others(operator: str) -> None:
    g = GraphBuilder()
    g.output(g.node(operator, g.input("x", [1, 3, 4, 5])))
    assert not any(node.op_type in (operator, "Cast") for node in check(g.model()).graph.node)


def test_the_tail_of_a_sigmoid_is_exact() -> None:
    g = GraphBuilder()
    g.output(g.node("Sigmoid", g.input("x", [4])))
    model, x = g.model(), np.array([-800, -90, -38, 5], np.float64)
    (y,) = outputs_of(in_float64(model, bind_inputs(model.graph, {})), [x])
    np.testing.assert_allclose(y[1:], 1 / (1 + np.exp(-x[1:])), rtol=1e-12)
    assert y[0] == 0


def test_what_has_no_float64_kernel_stays_between_casts() -> None:
    g = GraphBuilder()
    x = g.node("Erf", g.node("Tanh", g.input("x", [3, 4])))
    indices = g.node("ArgMax", x, axis=1)
    g.output(x)
    g.output(indices, dtype=TensorProto.INT64)
    operators = [node.op_type for node in check(g.model()).graph.node]
    assert operators == ["Tanh", "Cast", "Erf", "Cast", "ArgMax"]


def test_zeros_whose_type_is_not_named_are_widened_too() -> None:
    g = GraphBuilder()
    zeros = g.node("ConstantOfShape", g.ints(2, 5))
    x = g.input("x", [2, 3], TensorProto.FLOAT)
    indices = g.constant(np.array([[0, 2, 4], [1, 3, 0]], np.int64))
    g.output(g.node("ScatterElements", zeros, indices, x, axis=1))
    check(g.model())
