"""The inputs of checks reveal wrong networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.reference.rounding import rounds_values
from tunefarm_tuning.reference.comparison import STEPS, compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.workload.task import TensorSpec

PIXELS = TensorSpec(name="x", shape=(1, 3, 16, 16), dtype="uint8")
WEIGHTS = np.random.default_rng(3).uniform(-0.2, 0.2, (4, 3, 3, 3)).astype(np.float32)


def quantised(weights: NDArray[Any], x: NDArray[Any]) -> list[NDArray[Any]]:
    """Run a convolution of pixels, which stand for 0 to 1, between a quantised network's rounding."""
    g = GraphBuilder()
    scale, zero = g.constant(np.array(1 / 255, np.float32)), g.constant(np.array(0, np.uint8))
    step, middle = g.constant(np.array(0.05, np.float32)), g.constant(np.array(128, np.uint8))
    pixels = g.node("DequantizeLinear", g.input("x", PIXELS.shape, TensorProto.UINT8), scale, zero)
    y = g.node("Conv", pixels, g.constant(weights), pads=[1, 1, 1, 1])
    g.output(g.node("DequantizeLinear", g.node("QuantizeLinear", y, step, middle), step, middle))
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, {"x": x})]


@pytest.mark.parametrize("kind", InputKind)
def test_a_flipped_kernel_shows_in_a_quantised_network(kind: InputKind) -> None:
    (x,) = random_inputs([PIXELS], seed=0, kind=kind)
    expected = quantised(WEIGHTS, x)
    flipped = quantised(np.ascontiguousarray(WEIGHTS[..., ::-1]), x)
    assert compare_outputs(["y"], quantised(WEIGHTS, x), expected)[0].ok
    assert not compare_outputs(["y"], flipped, expected)[0].ok
    # Even where rounding ties are forgiven.
    assert not compare_outputs(["y"], flipped, expected, rounding=STEPS)[0].ok
    dark = x & 1
    assert compare_outputs(["y"], quantised(WEIGHTS * 0, dark), quantised(WEIGHTS, dark))[0].ok, "0 and 1"


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        ("uint8", 0, 255),
        ("int8", -128, 127),
        ("bool", 0, 1),
        ("int16", 0, 1),
        ("int32", 0, 1),
        ("int64", 0, 1),
    ],
)
def test_what_integers_are_drawn_from(dtype: str, least: int, most: int) -> None:
    spec = TensorSpec(name="x", shape=(100, 100), dtype=dtype)
    (x,) = random_inputs([spec], seed=1)
    (again,) = random_inputs([spec], seed=1)
    assert (x.shape, str(x.dtype)) == (spec.shape, dtype)
    assert (int(x.min()), int(x.max())) == (least, most)
    assert (x == again).all()
    (scalar,) = random_inputs([TensorSpec(name="x", shape=(), dtype=dtype)], seed=1)
    assert scalar.shape == ()


def test_what_rounds_its_values() -> None:
    def graph(*, weights: bool) -> Any:
        g = GraphBuilder()
        step, x = g.constant(np.array(0.1, np.float32)), g.input("x", [1, 3])
        rounded = g.node("QuantizeLinear", g.weight(3, 3) if weights else x, step)
        y = g.node("DequantizeLinear", rounded, step)
        g.output(g.node("MatMul", x, y) if weights else y)
        return g.model().graph

    assert rounds_values(graph(weights=False))
    assert not rounds_values(graph(weights=True))
