"""Products of unsigned activations and signed weights, which ONNX Runtime cuts off at 16 bits on CPUs with AVX2 alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.reference.exact_products import exact_products, multiply_exactly

Array = NDArray[Any]
OURS = {"domain": "com.microsoft"}
A_ZERO = 3


def extremes(dtype: Any, *shape: int) -> Array:
    """Return mostly the least and the largest integers, whose products add up to more than 16 bits hold."""
    random = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    ends, any_number = (
        random.choice([limits.min, limits.max], shape),
        random.integers(limits.min, limits.max + 1, shape),
    )
    return np.where(random.random(shape) < 0.7, ends, any_number).astype(dtype)


def run(model: onnx.ModelProto, feeds: dict[str, Array], *, optimised: bool = False) -> Array:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, feeds)[0])


def exact(model: onnx.ModelProto) -> onnx.ModelProto:
    multiply_exactly(model)
    return model


class Network:
    """A network with one product of bytes."""

    def __init__(self, a: Array, b: Array, b_zero: Array) -> None:
        self.g = GraphBuilder()
        self.feeds = {"a": a}
        self.a = self.g.input("a", list(a.shape), helper.np_dtype_to_tensor_dtype(a.dtype))
        self.b, self.bz = self.g.constant(b), self.g.constant(b_zero)
        self.az, self.s = self.g.constant(np.array(A_ZERO, a.dtype)), self.g.constant(np.float32(1))

    def model(self, y: str, dtype: Any) -> onnx.ModelProto:
        self.g.output(y, None, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return self.g.model(opset=17)


def matmul_integer(n: Network) -> onnx.ModelProto:
    return n.model(n.g.node("MatMulInteger", n.a, n.b, n.az, n.bz), np.int32)


def to_float(n: Network) -> onnx.ModelProto:
    return n.model(n.g.node("MatMulIntegerToFloat", n.a, n.b, n.s, n.s, n.az, n.bz, **OURS), np.float32)


def gemm(n: Network) -> onnx.ModelProto:
    return n.model(n.g.node("QGemm", n.a, n.s, n.az, n.b, n.s, n.bz, **OURS), np.float32)


@pytest.mark.parametrize(
    ("build", "zeros"),
    [
        *((build, "none") for build in (matmul_integer, to_float, gemm)),
        *((build, "each") for build in (matmul_integer, to_float)),
    ],
)
def test_sums_are_exact(build: Callable[[Network], onnx.ModelProto], zeros: str) -> None:
    a, b = extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32)
    b_zero = np.zeros((), np.int8) if zeros == "none" else np.arange(32, dtype=np.int8) - 9
    network = Network(a, b, b_zero)
    model = exact(build(network))
    expected = (a.astype(np.int64) - A_ZERO) @ (b.astype(np.int64) - b_zero)
    assert (run(model, network.feeds) == expected).all()


@pytest.mark.parametrize("zero", [None, 0, 9])
@pytest.mark.parametrize("group", [1, 4])
def test_convolutions_of_signed_activations_are_exact(zero: int | None, group: int) -> None:
    a, b = extremes(np.int8, 1, 16, 5, 5), extremes(np.uint8, 8, 16 // group, 1, 1)
    n = Network(a, b, np.array(zero or 0, np.uint8))
    y = n.g.node("ConvInteger", n.a, n.b, n.az, *([] if zero is None else [n.bz]), group=group)
    model = exact(n.model(y, np.int32))
    grouped = (a.astype(np.int64) - A_ZERO).reshape(group, 16 // group, 5, 5)
    weights = (b[:, :, 0, 0].astype(np.int64) - (zero or 0)).reshape(group, 8 // group, 16 // group)
    assert (run(model, n.feeds)[0] == np.einsum("gchw,goc->gohw", grouped, weights).reshape(8, 5, 5)).all()


def test_activations_that_are_rounded_without_a_zero_point_are_unsigned() -> None:
    a, b = extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32)
    g = GraphBuilder()
    rounded = g.node("QuantizeLinear", g.input("a", [8, 64]), g.constant(np.float32(1)))
    g.output(g.node("MatMulInteger", rounded, g.constant(b)), None, onnx.TensorProto.INT32)
    model = exact(g.model(opset=17))
    assert (run(model, {"a": a.astype(np.float32)}) == a.astype(np.int64) @ b.astype(np.int64)).all()


def test_changes_are_taken_back() -> None:
    network = Network(extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32), np.zeros((), np.int8))
    first = network.g.node("MatMulInteger", network.a, network.b, network.az, network.bz)
    second = network.g.node("MatMulInteger", network.a, network.b)
    model = network.model(network.g.node("Add", first, second), np.int32)
    before = model.SerializeToString()
    with exact_products(model) as changed:
        assert changed.SerializeToString() != before
    assert model.SerializeToString() == before


def test_zero_points_that_are_left_out_are_added() -> None:
    a, b = extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32)
    network = Network(a, b, np.zeros((), np.int8))
    model = network.model(network.g.node("MatMulInteger", network.a, network.b), np.int32)
    assert (run(exact(model), network.feeds) == a.astype(np.int64) @ b.astype(np.int64)).all()


def test_rounded_sums_are_exact() -> None:
    a, b = extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32)
    n = Network(a, b, np.zeros((), np.int8))
    sums = (a.astype(np.int64) - A_ZERO) @ b.astype(np.int64)
    step = np.float32(np.abs(sums).max() / 100)
    scale = n.g.constant(step)
    y = n.g.node("QLinearMatMul", n.a, n.s, n.az, n.b, n.s, n.bz, scale, n.g.constant(np.uint8(128)))
    rounded = np.clip(np.rint(sums / step) + 128, 0, 255)
    assert np.abs(run(exact(n.model(y, np.uint8)), n.feeds) - rounded).max() <= 1


def test_convolutions_are_exact() -> None:
    a, b = extremes(np.uint8, 1, 16, 5, 5), extremes(np.int8, 8, 16, 1, 1)
    n = Network(a, b, np.zeros(8, np.int8))
    sums = np.einsum("nchw,oc->nohw", a.astype(np.int64) - A_ZERO, b[:, :, 0, 0].astype(np.int64))
    step = np.float32(np.abs(sums).max() / 100)
    scale = n.g.constant(step)
    y = n.g.node("QLinearConv", n.a, n.s, n.az, n.b, n.s, n.bz, scale, n.g.constant(np.uint8(128)))
    rounded = np.clip(np.rint(sums / step) + 128, 0, 255)
    assert np.abs(run(exact(n.model(y, np.uint8)), n.feeds) - rounded).max() <= 1


def test_a_recurrent_layer_multiplies_exactly() -> None:
    """With one step from a state of zeros, its gates are the rounded inputs times the weights."""
    random = np.random.default_rng(1)
    x = random.choice([0.0, 1.0], (1, 1, 64)).astype(np.float32)
    w, r = extremes(np.int8, 1, 64, 32), extremes(np.int8, 1, 8, 32)
    scale = np.float32(1e-4)
    g = GraphBuilder()
    scales, zeros = g.constant(np.full(1, scale)), g.constant(np.zeros(1, np.int8))
    y = g.node(
        "DynamicQuantizeLSTM",
        *(g.input("x", [1, 1, 64]), g.constant(w), g.constant(r), "", "", "", "", ""),
        *(scales, zeros, scales, zeros),
        hidden_size=8,
        **OURS,
    )
    g.output(y, [1, 1, 1, 8])
    entry, output, _forget, candidate = np.split((x[0, 0] @ w[0].astype(np.float64)) * scale, 4)
    expected = _sigmoid(output) * np.tanh(_sigmoid(entry) * np.tanh(candidate))
    np.testing.assert_allclose(
        run(exact(g.model(opset=17)), {"x": x})[0, 0, 0], expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("zeros", ["none", "one", "each"])
def test_products_that_the_optimiser_makes_are_exact(zeros: str, optimised: bool) -> None:
    a, b = extremes(np.uint8, 8, 64), extremes(np.int8, 64, 32)
    n = Network(a, b, np.zeros((), np.int8) if zeros == "one" else np.zeros(32, np.int8))
    scales = n.s if zeros == "one" else n.g.constant(np.ones(32, np.float32))
    weight = n.g.node("DequantizeLinear", n.b, scales, *([] if zeros == "none" else [n.bz]), axis=1)
    y = n.g.node("MatMul", n.g.node("DequantizeLinear", n.a, n.s, n.az), weight)
    model = exact(n.model(y, np.float32))
    assert any(tensor.name.endswith(" as uint8") for tensor in model.graph.initializer)
    sums = (a.astype(np.int64) - A_ZERO) @ b.astype(np.int64)
    assert (run(model, n.feeds, optimised=optimised) == sums).all()


def test_products_of_activations_that_the_optimiser_makes_unsigned_are_exact() -> None:
    a, b = extremes(np.int8, 8, 64), extremes(np.int8, 64, 32)
    g = GraphBuilder()
    scale, zero = g.constant(np.float32(1)), g.constant(np.array(0, np.int8))
    rounded = g.node("QuantizeLinear", g.input("a", [8, 64]), scale, zero)
    factors = [g.node("DequantizeLinear", x, scale, zero) for x in (rounded, g.constant(b))]
    sums = a.astype(np.int64) @ b.astype(np.int64)
    step = np.float32(np.abs(sums).max() / 100)
    y = g.node("QuantizeLinear", g.node("MatMul", *factors), g.constant(step), zero)
    g.output(g.node("DequantizeLinear", y, scale, zero), [8, 32])
    model = exact(g.model(opset=17))
    got = run(model, {"a": a.astype(np.float32)}, optimised=True)
    assert np.abs(got - np.rint(sums / step)).max() <= 1


@pytest.mark.parametrize("signed", [True, False])
def test_other_products_stay(signed: bool) -> None:
    """Signed activations go with signed weights alone, and unsigned weights are exact."""
    dtype = np.int8 if signed else np.uint8
    network = Network(extremes(dtype, 8, 64), extremes(dtype, 64, 32), np.zeros((), dtype))
    model = matmul_integer(network)
    before = model.SerializeToString()
    multiply_exactly(model)
    assert model.SerializeToString() == before


def test_a_weight_of_two_products_is_stored_once() -> None:
    network = Network(extremes(np.uint8, 8, 8), extremes(np.int8, 8, 8), np.zeros((), np.int8))
    first = network.g.node("MatMulInteger", network.a, network.b, network.az, network.bz)
    second = network.g.node("MatMulInteger", network.a, network.b)
    model = exact(network.model(network.g.node("Add", first, second), np.int32))
    unsigned = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith(" as uint8")]
    assert sorted(array.shape for array in unsigned) == [(), (), (8, 8)]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))
