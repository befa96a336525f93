"""Unusual networks: nothing to compute, scalars, integers with few legal values, strange names, a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bad_models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import Model, import_model, verify
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.testing.records import TunedNet

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
Value = tuple[str, int, Sequence[int]]
Import = Callable[..., Model]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """A function that imports a network given as nodes, inputs, outputs and weights."""

    def make(
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        weights: dict[str, np.ndarray[Any, Any]] | None = None,
    ) -> Model:
        graph = helper.make_graph(
            list(nodes),
            "odd",
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "odd.onnx"
        path.write_bytes(model.SerializeToString())
        return import_model(path)

    return make


def deep_quantised(layers: int, element: int) -> onnx.ModelProto:
    """Return a network that rounds its values after every convolution: pixels or floats in, floats out."""
    rng = np.random.default_rng(5)
    g = GraphBuilder()

    def rounded(tensor: str, step: float, zero: int) -> str:
        scale, middle = g.constant(np.array(step, np.float32)), g.constant(np.array(zero, np.uint8))
        return g.node("DequantizeLinear", g.node("QuantizeLinear", tensor, scale, middle), scale, middle)

    x = g.input("x", [1, 3, 16, 16], element)
    if element == TensorProto.UINT8:
        step = g.constant(np.array(0.02, np.float32))
        y = g.node("DequantizeLinear", x, step, g.constant(np.array(128, np.uint8)))
    else:
        y = rounded(x, 0.03, 128)
    channels = 3
    for _ in range(layers):
        # Sums of products of two grids: many lie in the middle between two steps, but for their own rounding.
        weight = rng.integers(-127, 128, (16, channels, 3, 3)).astype(np.int8)
        scale = g.constant(np.array(0.016 / np.sqrt(9 * channels), np.float32))
        kernel = g.node("DequantizeLinear", g.constant(weight), scale, g.constant(np.array(0, np.int8)))
        y = rounded(g.node("Conv", y, kernel, pads=[1, 1, 1, 1]), 0.04, 128)
        channels = 16
    g.output(y)
    return g.model(17)


def run(model: Model, folder: Path, *inputs: Any) -> tuple[list[Any], tunefarm_tuning.Artifact]:
    artifact = tunefarm_tuning.compile(model, output=folder / "odd.tunefarm", baseline=False)
    assert all(miss["reason"] == MissReason.NO_RECORD for miss in artifact.report["coverage"]["misses"])
    return list(load(artifact.path, threads=1)(*inputs).values()), artifact


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", [TensorProto.UINT8, FLOAT])
def test_a_deep_quantised_network_is_right_where_a_rounding_tie_moved_a_step(
    element: int, tmp_path: Path
) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(deep_quantised(10, element).SerializeToString())
    model = import_model(path)
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "deep.tunefarm", baseline=False)
    assert artifact.report["checks"]["ok"]
    assert verify(artifact.path, model).ok


@pytest.mark.exhaustive
def test_a_network_without_a_kernel(imported: Import, tmp_path: Path) -> None:
    model = imported(
        [helper.make_node("Identity", ["x"], ["y"])], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])]
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs, artifact = run(model, tmp_path, x)
    np.testing.assert_array_equal(outputs[0], x)
    assert artifact.report["coverage"]["tasks"] == 0


@pytest.mark.exhaustive
def test_scalars_two_outputs_and_names_that_nobody_would_give(imported: Import, tmp_path: Path) -> None:
    a, b = "input.1/a b", "out:0\x1b[31m"
    model = imported(
        [
            helper.make_node("Add", [a, "s"], ["sum"]),
            helper.make_node("ReduceSum", ["sum"], [b], keepdims=0),
            helper.make_node("Greater", [a, "s"], ["above"]),
        ],
        [(a, FLOAT, [2, 3]), ("s", FLOAT, [])],
        [(b, FLOAT, []), ("above", BOOL, [2, 3])],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs, artifact = run(model, tmp_path, x, np.float32(2))
    assert outputs[0] == 27
    np.testing.assert_array_equal(outputs[1], x > 2)
    assert [spec["name"] for spec in artifact.manifest["outputs"]] == [b, "above"]


@pytest.mark.exhaustive
def test_a_network_with_a_function_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "functions.onnx"
    path.write_bytes(bad_models.local_function())
    model = import_model(path)
    assert model.operators == (("Add", 1),)
    x = np.array([[1, -2, 3, 0.5]], np.float32)
    outputs, _ = run(model, tmp_path, x)
    np.testing.assert_array_equal(outputs[0], 2 * x)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(("kind", "warning"), [("divisor", "all one"), ("index", "")])
def test_integers_that_not_any_value_will_do_for(
    imported: Import, tmp_path: Path, kind: str, warning: str
) -> None:
    if kind == "divisor":
        node = helper.make_node("Div", ["x", "y"], ["z"])
        model = imported([node], [("x", INT32, [64]), ("y", INT32, [64])], [("z", INT32, [64])])
        inputs = [np.full(64, 7, np.int32), np.full(64, 2, np.int32)]
        expected: np.ndarray[Any, Any] = np.full(64, 3, np.int32)
    else:
        row = np.ones((1, 4), np.float32)
        node = helper.make_node("Gather", ["w", "i"], ["z"])
        model = imported([node], [("i", INT64, [64])], [("z", FLOAT, [64, 4])], {"w": row})
        inputs, expected = [np.zeros(64, np.int64)], np.ones((64, 4), np.float32)
    outputs, artifact = run(model, tmp_path, *inputs)
    np.testing.assert_array_equal(outputs[0], expected)
    assert warning in " ".join(artifact.report["warnings"])


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="building for CUDA needs nvcc")
def test_untuned_kernels_build_for_a_gpu_too(tiny_net: TunedNet, tmp_path: Path) -> None:
    session = CompileSession(tiny_net.model, parse_target("cuda/sm_90"), tmp_path, CompileLimits())
    try:
        tasks = session.load().tasks
        session.build_kernel(tasks[0].name, tmp_path / "kernel.so", None)
        session.build_model(tmp_path / "model.so", {})
    finally:
        session.close()
    assert (tmp_path / "model.so").stat().st_size > 0
