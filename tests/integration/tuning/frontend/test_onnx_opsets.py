"""Import and pipeline keep the meaning of ONNX operators and opsets: small networks against ONNX Runtime.

``TUNEFARM_ALL_OPSETS=1`` runs every network in every opset that has it, not only once per way of writing it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_zoo
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import UNOPTIMISED, built_outputs, reference_outputs

from tunefarm_tuning import ImportLimits, import_model
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

EVERY = os.environ.get("TUNEFARM_ALL_OPSETS") == "1"
CHOSEN = [
    (name, opset)
    for name in onnx_zoo.names()
    for opset in (
        onnx_zoo.opsets(name) if EVERY or name in ("cnn", "transformer") else onnx_zoo.ways_of_writing(name)
    )
]


def check_numbers(model: onnx.ModelProto, folder: Path) -> None:
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    loaded = load_relax(path, Binding(), UNOPTIMISED)
    inputs = random_inputs(loaded.inputs, seed=1)
    outputs, expected = built_outputs(loaded, inputs, folder), reference_outputs(path, loaded, inputs)
    for comparison in compare_outputs([spec.name for spec in loaded.outputs], outputs, expected):
        assert comparison.ok, f"{comparison.name}: {comparison.message}"


@pytest.mark.matrix(every=21, each_value=False)
@pytest.mark.parametrize(("name", "opset"), CHOSEN)
def test_networks_of_every_opset(name: str, opset: int, tmp_path: Path) -> None:
    check_numbers(onnx_zoo.build(name, opset), tmp_path)


def one_hot_of_any_depth(g: GraphBuilder) -> list[Any]:
    depth = g.node("Add", g.input("d", [1], TensorProto.INT64), g.ints(1))
    values = g.constant(np.array([0, 1], np.float32))
    return [g.node("OneHot", g.input("x", [3], TensorProto.INT64), depth, values)]


def max_roi_align(g: GraphBuilder) -> list[Any]:
    rois, batch = g.constant(np.ones((1, 4), np.float32)), g.ints(0)
    return [g.node("RoiAlign", g.input("x", [1, 2, 8, 8]), rois, batch, mode="max")]


def open_activation(g: GraphBuilder) -> list[Any]:
    weights = g.weight(1, 4, 4), g.weight(1, 4, 4)
    return [g.node("RNN", g.input("x", [2, 3, 4]), *weights, hidden_size=4, activations=["ScaledTanh"])]


def unknown_activation(g: GraphBuilder) -> list[Any]:
    weights = g.weight(1, 4, 4), g.weight(1, 4, 4)
    return [g.node("RNN", g.input("x", [2, 3, 4]), *weights, hidden_size=4, activations=["Softplus"])]


def training_dropout(g: GraphBuilder) -> list[Any]:
    ratio, training = g.constant(np.array(0.5, np.float32)), g.constant(np.array(True))
    return [g.node("Dropout", g.input("x", [1, 8]), ratio, training)]


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("build", "operator", "words"),
    [
        (one_hot_of_any_depth, "OneHot", "its depth must be a constant"),
        (max_roi_align, "RoiAlign", "mode max is not supported"),
        (open_activation, "RNN", "is given no alpha or beta"),
        (unknown_activation, "RNN", "its activation Softplus is not supported"),
        (training_dropout, "Dropout", "training mode"),
    ],
)
def test_unsupported_operators_are_named(build: Any, operator: str, words: str, tmp_path: Path) -> None:
    g = GraphBuilder()
    for output in build(g):
        g.output(output[0], None, output[1]) if isinstance(output, tuple) else g.output(output)
    path = tmp_path / "model"
    path.write_bytes(g.model(17).SerializeToString())
    with pytest.raises(InvalidModelError) as caught:
        import_model(path, limits=ImportLimits(memory_bytes=4 << 30, timeout_sec=120))
    assert caught.value.code == "unsupported-operator"
    assert (caught.value.fields["operator"], caught.value.fields["opset"]) == (operator, 17)
    assert str(caught.value.fields["node"]).startswith(operator.lower())
    assert words in caught.value.message


def test_a_dynamically_quantised_lstm_rounds_as_onnx_runtime_does(tmp_path: Path) -> None:
    rng, inputs, hidden = np.random.default_rng(3), 6, 24
    g = GraphBuilder(seed=4)
    weights = [
        g.constant(rng.integers(60, 196, (2, rows, 4 * hidden), np.uint8)) for rows in (inputs, hidden)
    ]
    steps = [g.constant(np.array([0.01, 0.02], np.float32)), g.constant(np.array([128, 120], np.uint8))]
    outputs = g.node(
        "DynamicQuantizeLSTM", g.input("x", [5, 2, inputs]), *weights, g.weight(2, 8 * hidden), *[""] * 4,
        *steps, *steps, domain="com.microsoft", outputs=3, hidden_size=hidden, direction="bidirectional",
    )  # fmt: skip
    for output in outputs:
        g.output(output)
    check_numbers(g.model(17), tmp_path)


def test_features_are_scaled_before_a_network(tmp_path: Path) -> None:
    g = GraphBuilder()
    ml = {"domain": "ai.onnx.ml"}
    x = g.node("Scaler", g.input("x", [3, 4]), offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0, 1.0, 0.5, 3.0], **ml)
    g.output(g.node("ArrayFeatureExtractor", x, g.ints(2, 0), **ml))
    g.output(g.node("Binarizer", x, threshold=0.5, **ml))
    coefficients = [0.1] * 4 + [0.2] * 4
    g.output(g.node("LinearRegressor", x, coefficients=coefficients, intercepts=[1.0, 2.0], targets=2, **ml))
    check_numbers(g.model(), tmp_path)


def test_operators_that_onnx_runtime_fuses(tmp_path: Path) -> None:
    g, ours = GraphBuilder(seed=5), {"domain": "com.microsoft"}
    x = g.input("x", [2, 3, 8, 8])
    y = g.node("FusedConv", x, g.weight(3, 3, 3, 3), g.weight(3), x, **ours, pads=[1] * 4, activation="Relu")
    for activation, params in (("Clip", [-0.5, 0.75]), ("LeakyRelu", [0.2]), ("Tanh", [])):
        known = {"activation_params": params} if params else {}
        y = g.node("FusedConv", y, g.weight(3, 3, 1, 1), **ours, activation=activation, **known)
    rows = g.node("Reshape", y, g.ints(2, 24, 8))
    rows = g.node("FusedMatMul", rows, g.weight(2, 24, 16), **ours, transA=1, alpha=0.5)
    rows = g.node(
        "QuickGelu", g.node("FusedMatMul", rows, g.weight(4, 16), **ours, transB=1), **ours, alpha=1.5
    )
    flat = g.node("Reshape", rows, g.ints(4, 16))
    options = {"activation": "LeakyRelu", "activation_alpha": 0.1}
    g.output(g.node("FusedGemm", flat, g.weight(5, 16), g.weight(5), **ours, **options, transB=1))
    check_numbers(g.model(17), tmp_path)


def test_fused_layers_of_float16_round_their_result_alone(tmp_path: Path) -> None:
    g, ours = GraphBuilder(seed=5), {"domain": "com.microsoft"}
    half = TensorProto.FLOAT16
    x, y = (g.input(name, [4, 64], half) for name in "xy")
    scale, bias = (g.constant(np.linspace(*ends, 64, dtype=np.float16)) for ends in ((0.5, 2), (-1, 1)))
    layers = [
        g.node("SkipLayerNormalization", x, y, scale, bias, **ours),
        g.node("SkipSimplifiedLayerNormalization", x, y, scale, **ours),
        g.node("BiasGelu", x, bias, **ours),
        g.node("FastGelu", x, **ours),
        g.node("QuickGelu", x, **ours),
    ]
    for layer in layers:
        g.output(layer, None, half)
    path = tmp_path / "model"
    path.write_bytes(g.model(17).SerializeToString())
    loaded = load_relax(path, Binding(), UNOPTIMISED)
    inputs = random_inputs(loaded.inputs, seed=1)
    outputs, expected = built_outputs(loaded, inputs, tmp_path), reference_outputs(path, loaded, inputs)
    for output, reference in zip(outputs, expected, strict=True):
        assert output.dtype == np.float16
        steps = np.abs(np.float32(output) - np.float32(reference)) / np.spacing(np.abs(reference))
        assert steps.max() <= 1


def test_products_that_onnx_runtime_quantises(tmp_path: Path) -> None:
    rng, g, ours = np.random.default_rng(3), GraphBuilder(seed=6), {"domain": "com.microsoft"}
    x = g.input("x", [2, 5, 16])
    weights, zero = g.constant(rng.integers(0, 256, (16, 12), np.uint8)), g.constant(np.array(120, np.uint8))
    y = g.node(
        "DynamicQuantizeMatMul",
        x,
        weights,
        g.constant(np.array(0.02, np.float32)),
        zero,
        g.weight(12),
        **ours,
    )
    integers, scale, middle = g.node("DynamicQuantizeLinear", y, outputs=3)
    weights = g.constant(rng.integers(-127, 128, (12, 6), np.int8))
    columns = g.constant(rng.uniform(0.01, 0.03, 6).astype(np.float32))
    g.output(
        g.node("MatMulIntegerToFloat", integers, weights, scale, columns, middle, "", g.weight(6), **ours)
    )
    g.output(middle, None, TensorProto.UINT8)
    check_numbers(g.model(17), tmp_path)


def test_dynamic_quantisation_rounds_ties_to_even_and_takes_zeros(tmp_path: Path) -> None:
    g = GraphBuilder()
    # The range is 255, so that each step is 1 and halves are ties.
    ties = g.constant(np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.0, -128.0], np.float32))
    x = g.node("Mul", g.input("x", [1]), g.constant(np.zeros(8, np.float32)))
    for tensor in (g.node("Add", x, ties), x):
        for output in g.node("DynamicQuantizeLinear", tensor, outputs=3):
            g.output(
                g.node("Cast", output, to=TensorProto.FLOAT)
            )  # 8-bit integers may be compared within a step
    check_numbers(g.model(17), tmp_path)
