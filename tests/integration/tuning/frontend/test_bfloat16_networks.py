"""Networks that compute in bfloat16 between float32 edges, compared with a float32 twin, for CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnxruntime import InferenceSession

from tunefarm_tuning import compile as compile_model
from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.frontend.onnx.bfloat16 import narrow_tensors, uses_bfloat16, widened
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.workload.binding import Binding

pytest.importorskip("tvm")

from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.tvm.tasks.extract import rounding_of
from tunefarm_tuning.tvm.transform.float32_arithmetic import compute_bfloat16_in_float32
from tunefarm_tuning.tvm.transform.pipeline import load_relax

NARROW = TensorProto.BFLOAT16
OPSET = 22  # the first whose convolutions take bfloat16

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="machine code for GPUs needs nvcc")


class NarrowBuilder(GraphBuilder):
    """Weights are cast where they are used, as exporters of mixed precision have it."""

    def narrow(self, tensor: str) -> str:
        return str(self.node("Cast", tensor, to=NARROW))

    def narrow_weight(self, *shape: int) -> str:
        return self.narrow(self.weight(*shape))

    def close(self, tensor: str, shape: list[int]) -> onnx.ModelProto:
        self.output(self.node("Cast", tensor, to=TensorProto.FLOAT), shape)
        return self.model(OPSET)


def convolutional() -> onnx.ModelProto:
    g = NarrowBuilder(seed=3)
    y = g.narrow(g.input("x", [1, 16, 14, 14]))
    y = g.node("Conv", y, g.narrow_weight(32, 16, 3, 3), g.narrow_weight(32), pads=[1, 1, 1, 1])
    ones, zeros = (g.narrow(g.constant(np.full(32, value, np.float32))) for value in (1.1, 0.1))
    y = g.node("Relu", g.node("BatchNormalization", y, ones, zeros, zeros, ones))
    y = g.node("Add", g.node("Conv", y, g.narrow_weight(32, 32, 1, 1)), y)
    y = g.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = g.node("Flatten", g.node("GlobalAveragePool", y))
    y = g.node("Gemm", y, g.narrow_weight(32, 10), g.narrow_weight(10))
    return g.close(g.node("Softmax", y, axis=-1), [1, 10])


def encoder() -> onnx.ModelProto:
    g = NarrowBuilder(seed=5)
    x = g.narrow(g.input("x", [2, 16, 64]))
    scale, bias = (g.narrow(g.constant(np.full(64, value, np.float32))) for value in (1.0, 0.0))
    y = g.node("LayerNormalization", x, scale, bias, axis=-1)
    q, k, v = (g.node("MatMul", y, g.narrow_weight(64, 64)) for _ in range(3))
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 1]))
    eighth = g.narrow(g.constant(np.array(0.125, np.float32)))
    y = g.node("MatMul", g.node("Softmax", g.node("Mul", scores, eighth), axis=-1), v)
    return g.close(g.node("Gelu", g.node("Add", y, x)), [2, 16, 64])


def elements() -> onnx.ModelProto:
    """Return a network with bfloat16 weights, branches, and operators without bfloat16 kernels."""
    g = NarrowBuilder(seed=7)
    rng = np.random.default_rng(1)
    y = g.narrow(g.input("x", [4, 32]))
    weights = (rng.standard_normal((32, 32)) / 6).astype(ml_dtypes.bfloat16)
    y = g.node("Gemm", y, g.constant(weights), g.constant(np.ones(32, ml_dtypes.bfloat16)))
    left, right = g.node("Split", g.node("LeakyRelu", y, alpha=0.1), outputs=2, axis=1, num_outputs=2)
    y = g.node("Where", g.node("Greater", left, right), g.node("Exp", left), g.node("Tanh", right))
    return g.close(g.node("ReduceMean", y, g.ints(1), keepdims=1), [4, 1])


def resizing() -> onnx.ModelProto:
    """Return a decoder's steps: twice as large by lines, by curves, and half as large by a size that divides nothing."""
    g = NarrowBuilder(seed=9)
    y = g.node("Conv", g.narrow(g.input("x", [1, 4, 9, 8])), g.narrow_weight(8, 4, 3, 3))
    for mode, scale in (("linear", 2.0), ("cubic", 2.0), ("linear", 0.3)):
        scales = g.constant(np.array([1, 1, scale, scale], np.float32))
        y = g.node("Resize", y, "", scales, mode=mode)
    return g.close(y, [1, 8, 8, 7])


NETS: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build for build in (convolutional, encoder, elements, resizing)
}


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_twin_rounds_where_the_network_does() -> None:
    g = NarrowBuilder(seed=2)
    x = g.narrow(g.input("x", [3, 8]))
    weights = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    y = g.node("Relu", g.node("MatMul", x, g.narrow(g.constant(weights))))
    model = g.close(g.node("Add", y, y), [3, 5])
    values = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)

    def rounded(values: np.ndarray) -> np.ndarray:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    def run(twin: onnx.ModelProto) -> np.ndarray:
        session = InferenceSession(twin.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": values})[0])

    product = np.maximum(rounded(rounded(values) @ rounded(weights)), 0)
    np.testing.assert_array_equal(run(widened(model, rounds=True)), rounded(product + product))
    np.testing.assert_allclose(
        run(widened(model, rounds=False)), 2 * np.maximum(values @ weights, 0), rtol=1e-5, atol=1e-6
    )


def test_types_follow_the_operators_definitions() -> None:
    g = NarrowBuilder()
    x = g.narrow(g.input("x", [2, 4]))
    shape = g.node("Shape", x)
    bigger = g.node("Greater", x, x)
    best = g.node("ArgMax", x, axis=1)
    values, places = g.node("TopK", x, g.ints(2), outputs=2)
    like = g.node("CastLike", g.constant(np.ones(3, np.float32)), x)
    moved = g.node("Reshape", x, shape)
    model = g.close(moved, [2, 4])
    narrow = narrow_tensors(model)
    assert {x, values, like, moved} <= narrow
    assert not {shape, bigger, best, places, model.graph.output[0].name} & narrow
    assert not uses_bfloat16(widened(model, rounds=False).graph)


def test_a_network_without_it_stays_as_it_is() -> None:
    g = GraphBuilder()
    g.output(g.node("Relu", g.input("x", [2, 4])), [2, 4])
    assert narrow_tensors(g.model(OPSET)) == frozenset()


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize("name", NETS)
def test_it_compiles_for_this_cpu_and_gives_the_twins_answers(name: str, tmp_path: Path) -> None:
    model = import_model(saved(NETS[name](), tmp_path))
    artifact = compile_model(model, "host", output=tmp_path / "made", baseline=False)
    checks = artifact.report["checks"]
    assert checks["ok"]
    assert {output["rtol"] for input_set in checks["input_sets"] for output in input_set["outputs"]} == {5e-2}
    assert checks["max_rel_error"] < 5e-2
    assert any("computes in bfloat16" in warning for warning in artifact.report["warnings"])


def casts() -> onnx.ModelProto:
    g = NarrowBuilder()
    g.input("x", [67])
    return g.close(g.narrow("x"), [67])


def residue() -> onnx.ModelProto:
    g = NarrowBuilder()
    x = g.input("x", [67])
    g.output(g.node("Sub", x, g.node("Cast", g.narrow(x), to=TensorProto.FLOAT)), [67])
    return g.model(OPSET)


def chain() -> onnx.ModelProto:
    """Steps with one right answer each, a kernel or so."""
    g = NarrowBuilder(seed=4)
    x = g.narrow(g.input("x", [5, 67]))
    y = x
    for _ in range(4):
        y = g.node("Relu", g.node("Sub", g.node("Mul", y, x), g.narrow_weight(67)))
        y = g.node("Where", g.node("Less", y, x), y, g.node("Neg", x))
    return g.close(y, [5, 67])


def scattered_sum() -> onnx.ModelProto:
    g = NarrowBuilder()
    x = g.narrow(g.input("x", [1000]))
    zeros, places = g.constant(np.zeros(4, np.float32)), g.constant(np.arange(1000) % 2)
    return g.close(g.node("ScatterElements", g.narrow(zeros), places, x, axis=0, reduction="add"), [4])


def scattered_rows() -> onnx.ModelProto:
    g = NarrowBuilder()
    x = g.narrow(g.input("x", [1000, 3]))
    zeros, places = g.constant(np.zeros((4, 3), np.float32)), g.constant(np.arange(1000)[:, None] % 2)
    return g.close(g.node("ScatterND", g.narrow(zeros), places, x, reduction="add"), [4, 3])


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [casts, residue, chain, scattered_sum, scattered_rows])
def test_on_a_cpu_each_result_is_rounded_once(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    model = make()
    compile_model(
        import_model(saved(model, tmp_path)), "host", output=tmp_path / "network.tunefarm", baseline=False
    )
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).uniform(-1, 2, shape).astype(np.float32)
    twin = InferenceSession(
        widened(model, rounds=True).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (output,) = load(tmp_path / "network.tunefarm")(x).values()
    np.testing.assert_array_equal(output, np.asarray(twin.run(None, {"x": x})[0]))


@pytest.mark.exhaustive
def test_arithmetic_is_in_float32_and_tensors_are_not(tmp_path: Path) -> None:
    target = parse_target("cuda/sm_80")
    path = saved(convolutional(), tmp_path)
    tasks = extract_tasks(import_model(path), target)
    product = next(task for task in tasks if "conv2d" in task.workload.name)
    assert [arg.dtype for arg in product.workload.args[:2]] == ["bfloat16", "bfloat16"]
    func = module_from_text(product.workload.ir)["main"]
    assert 'T.Cast("float32"' in func.script()
    assert rounding_of(func) == "bfloat16"
    cores = {
        tiling.tensor_cores
        for tiling in DesignSpace(module_from_text(product.workload.ir), target).config_space.gpu
        if tiling
    }
    assert cores >= {0, 1}


def test_another_network_is_left_alone(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.output(g.node("MatMul", g.input("x", [2, 4]), g.weight(4, 4)), [2, 4])
    module = load_relax(saved(g.model(OPSET), tmp_path), Binding(), parse_target("host")).module
    assert compute_bfloat16_in_float32(module).same_as(module)


@pytest.mark.exhaustive
@needs_nvcc
@pytest.mark.parametrize("name", NETS)
def test_it_becomes_machine_code_for_a_gpu(name: str, tmp_path: Path) -> None:
    target = parse_target("cuda/sm_80")
    build_model(
        load_relax(saved(NETS[name](), tmp_path), Binding(), target).module, target, tmp_path / "net.so"
    )
    assert b"\x7fELF" in (tmp_path / "net.so").read_bytes()[1:]
