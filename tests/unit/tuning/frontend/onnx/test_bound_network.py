"""Binding shapes and values to a network's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import GraphBuilder

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import bind_model, runnable_bytes
from tunefarm_tuning.workload.binding import Binding

DTYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "int64": TensorProto.INT64,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}


def network(shape: Any = (), dtype: int = TensorProto.INT64) -> onnx.ModelProto:
    """Return a network with the data `x` of open length, and a setting."""
    g = GraphBuilder()
    x = g.input("x", ["batch", 3])
    setting = g.input("setting", shape, dtype)
    g.output(g.node("Add", x, g.node("Cast", setting, to=TensorProto.FLOAT)), ["batch", 3])
    return g.model()


def bound(model: onnx.ModelProto, value: Any, **shapes: Any) -> np.ndarray:
    result = bind_model(model, Binding.of({"x": [2, 3], **shapes}, {"setting": value}))
    (constant,) = (tensor for tensor in result.model.graph.initializer if tensor.name == "setting")
    assert [spec.name for spec in result.inputs] == ["x"]
    assert [value.name for value in result.model.graph.input] == ["x"]
    onnx.checker.check_model(runnable_bytes(result.model))
    return numpy_helper.to_array(constant)


def refused(model: onnx.ModelProto, value: Any, **shapes: Any) -> str:
    with pytest.raises(InvalidModelError) as caught:
        bind_model(model, Binding.of({"x": [2, 3], **shapes}, {"setting": value}))
    assert caught.value.code == "bad-value"
    assert caught.value.fields["input"] == "setting"
    return caught.value.message


def test_shapes_are_fixed_in_the_model() -> None:
    model = network([])
    model.graph.value_info.append(helper.make_tensor_value_info("stale", TensorProto.FLOAT, [7]))
    result = bind_model(model, Binding.of({"x": [2, 3]}))
    assert [(spec.name, spec.shape, spec.dtype) for spec in result.inputs] == [
        ("x", (2, 3), "float32"),
        ("setting", (), "int64"),
    ]
    assert [dim.dim_value for dim in result.model.graph.input[0].type.tensor_type.shape.dim] == [2, 3]
    assert not result.model.graph.value_info


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", -(1 << 63)),
        ("uint64", (1 << 64) - 1),
        ("int8", -128),
        ("float32", 0.1),
        ("float16", 2),
        ("bool", True),
    ],
)
def test_a_value_becomes_a_constant_of_the_input_s_type(dtype: str, value: Any) -> None:
    array = bound(network([], DTYPES[dtype]), value)
    assert array.dtype == dtype
    assert array.shape == ()
    assert array == np.array(value, dtype)


def test_one_number_fills_an_input_of_any_shape() -> None:
    assert bound(network([1]), 5).tolist() == [5]
    assert bound(network(["batch", 3]), 5).tolist() == [[5, 5, 5]]
    assert bound(network(["n", 3]), 5, setting=[2, 3]).tolist() == [[5, 5, 5], [5, 5, 5]]
    assert bound(network(None), 5).tolist() == 5


def test_lists_have_the_input_s_shape() -> None:
    assert bound(network(["n", 3]), [[1, 2, 3]]).tolist() == [[1, 2, 3]]
    assert bound(network(None), [1, 2, 3]).tolist() == [1, 2, 3]
    assert "its shape is [2], but the input's is [1]" in refused(network([1]), [1, 2])
    assert "its shape is [2], but the input's is [?, 3]" in refused(network(["n", 3]), [1, 2])
    assert "its shape is [1, 3], but the input's is [?, 3]" in refused(
        network(["n", 3]), [[1, 2, 3]], setting=[2, 3]
    )


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    [
        ("int8", 128, "128 is out of range: the input is int8, from -128 to 127"),
        ("int8", -129, "-129 is out of range"),
        ("int64", 1 << 63, "is out of range: the input is int64"),
        ("uint64", -1, "-1 is out of range"),
        ("int64", 16000.0, "the input is int64; write whole numbers"),
        ("int64", True, "the input is int64; write a number, not true or false"),
        ("float32", True, "the input is float32; write a number"),
        ("float16", 70000, "too large for float16, whose largest is 65504"),
        ("float32", 1e39, "too large for float32"),
        ("bool", 1, "the input is boolean; write true or false"),
    ],
)
def test_a_value_that_the_input_cannot_hold_is_refused(dtype: str, value: Any, why: str) -> None:
    assert why in refused(network([], DTYPES[dtype]), value)


def test_an_unknown_input_and_the_last_input_are_refused() -> None:
    with pytest.raises(
        InvalidModelError,
        match="a value is given for input 'rate', but the model has no such input; it has: x, setting",
    ) as caught:
        bind_model(network(), Binding.of({"x": [1, 3]}, {"rate": 1}))
    assert caught.value.code == "unknown-input"
    with pytest.raises(InvalidModelError, match="it has: x, setting; did you mean 'setting'"):
        bind_model(network(), Binding.of({"x": [1, 3]}, {"setings": 1}))
    with pytest.raises(InvalidModelError, match="no input would remain"):
        bind_model(network(), Binding.of(None, {"x": [[1, 2, 3]], "setting": 1}))


def test_weights_of_old_files_are_no_inputs_any_more() -> None:
    model = network([])
    weight = numpy_helper.from_array(np.ones([3], np.float32), "weight")
    model.graph.initializer.append(weight)
    model.graph.input.append(helper.make_tensor_value_info("weight", TensorProto.FLOAT, [3]))
    model.graph.node[-1].input[0] = "weight"
    model.ir_version = 3
    assert bound(model, 4) == 4
    assert model.ir_version == 4


def test_a_reference_makes_no_use_of_the_permission_to_round_what_is_multiplied() -> None:
    g = GraphBuilder()
    weights = g.constant(np.zeros((4, 1, 8), np.uint8))
    options: dict[str, Any] = {"K": 16, "N": 4, "bits": 4, "block_size": 16, "domain": "com.microsoft"}
    g.output(g.node("MatMulNBits", g.input("x", [2, 16]), weights, g.weight(4), accuracy_level=4, **options))
    model = g.model()
    for rounds, expected in ((True, set()), (False, {"accuracy_level"})):
        (node,) = onnx.load_from_string(runnable_bytes(model, rounds=rounds)).graph.node
        assert {a.name for a in node.attribute} - {"K", "N", "bits", "block_size"} == expected
    assert any(a.name == "accuracy_level" for a in model.graph.node[0].attribute)
