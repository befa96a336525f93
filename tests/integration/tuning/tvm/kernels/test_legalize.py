"""Special values through operators (NaN, infinities, signed zeros, denormals), and linear resizing, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs
from tvm import relax

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.legalization import CPU_RULES
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")
OPSET = 20
WIDTH = 16
Group = Callable[[GraphBuilder, str], dict[str, str]]


def rows() -> NDArray[np.float32]:
    """Return one row of ordinary numbers, and others with something special among them."""
    plain = np.linspace(-2, 2, WIDTH).astype(np.float32)
    largest = float(np.finfo(np.float32).max)
    specials = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, largest, -largest, 90, -90)
    samples = [plain, *(np.where(np.arange(WIDTH) == 5, special, plain) for special in specials)]
    samples += [np.full(WIDTH, special) for special in (np.nan, np.inf, -np.inf)]
    samples.append(np.where(np.arange(WIDTH) == 5, np.inf, np.where(np.arange(WIDTH) == 9, -np.inf, plain)))
    return np.stack(samples).astype(np.float32)


def activations(g: GraphBuilder, x: str) -> dict[str, str]:
    names = "Relu Sigmoid Tanh Softsign Softplus Elu Selu Celu LeakyRelu HardSigmoid HardSwish Mish Gelu ThresholdedRelu Erf Abs Exp"
    by_name = {name: g.node(name, x) for name in names.split()}
    by_name["gelu, by tanh"] = g.node("Gelu", x, approximate="tanh")
    by_name["elu of another slope"] = g.node("Elu", x, alpha=0.3)
    by_name["steep leaky relu"] = g.node("LeakyRelu", x, alpha=2.0)
    by_name["relu after a relu"] = g.node("Relu", g.node("Add", g.node("Relu", x), number(g, 1.0)))
    return by_name


def bounds(g: GraphBuilder, x: str) -> dict[str, str]:
    y = g.node("Transpose", g.node("Transpose", g.node("Concat", x, x, axis=1), perm=[1, 0]), perm=[1, 0])
    y = g.node("Slice", y, g.ints(3), g.ints(3 + WIDTH), g.ints(1))
    return {
        "clip": g.node("Clip", x, number(g, 0.0), number(g, 6.0)),
        "clip from below": g.node("Clip", x, number(g, -1.0)),
        "clip from above": g.node("Clip", x, "", number(g, 1.0)),
        "max": g.node("Max", x, y),
        "min": g.node("Min", x, y),
        "max of three": g.node("Max", x, y, number(g, 0.5)),
        "sum of three": g.node("Sum", x, y, number(g, 0.5)),
        "max with a number": g.node("Max", number(g, 0.5), x),
        "min with a number": g.node("Min", x, number(g, 0.5)),
        "max with nan": g.node("Max", x, number(g, np.nan)),
        "nan with max": g.node("Max", number(g, np.nan), x),
        "sign": g.node("Sign", x),
    }


def along_rows(g: GraphBuilder, x: str) -> dict[str, str]:
    by_name = {name: g.node(name, x, axis=1) for name in ("Softmax", "LogSoftmax")}
    by_name["softmax, scaled and masked"] = g.node("Softmax", g.node("Mul", x, number(g, 0.125)))
    for name in ("ReduceSum", "ReduceLogSumExp"):
        by_name[name] = g.node(name, x, g.ints(1))
    by_name["norm"] = g.node("LayerNormalization", x, g.weight(WIDTH), g.weight(WIDTH))
    by_name["matmul"] = g.node("MatMul", x, g.weight(WIDTH, 8))
    return by_name


def number(g: GraphBuilder, value: float) -> str:
    return g.constant(np.array(value, np.float32))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("group", [activations, bounds, along_rows])
def test_special_values_go_through_as_in_onnxruntime(group: Group, tmp_path: Path) -> None:
    g = GraphBuilder()
    outputs = group(g, g.input("x", [len(rows()), WIDTH]))
    for tensor in outputs.values():
        g.output(tensor)
    path = tmp_path / "model"
    path.write_bytes(g.model(OPSET).SerializeToString())
    ours = dict(zip(outputs, run(path, tmp_path, rows()), strict=True))
    wanted = dict(zip(outputs, reference(path, rows()), strict=True))
    wrong = {name: differences(ours[name], wanted[name]) for name in outputs}
    assert not {name: difference for name, difference in wrong.items() if difference}


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_index_of_a_maximum_is_valid(dtype: str, last: int, tmp_path: Path) -> None:
    """The index of a maximum is valid even if all values are the least one: it may be read from."""
    element = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8}[dtype]
    values = np.zeros((3, 8), dtype)
    if dtype == "float32":
        values[1:] = [[-np.inf], [np.nan]]
    g = GraphBuilder()
    x = g.input("x", list(values.shape), element)
    g.output(g.node("ArgMax", x, axis=1, select_last_index=last), None, TensorProto.INT64)
    path = tmp_path / "model"
    path.write_bytes(g.model(OPSET).SerializeToString())
    (places,) = run(path, tmp_path, values)
    assert np.all((places >= 0) & (places < 8))
    np.testing.assert_array_equal(places[:2], np.full((2, 1), 7 if last else 0))


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(("kernel", "exact"), [(2, True), (4, True), (3, False)])
def test_an_infinity_through_a_transposed_convolution(kernel: int, *, exact: bool, tmp_path: Path) -> None:
    """If the stride divides the kernel, no phase has padding weights; docs/known-limits.md describes the other case."""
    g = GraphBuilder()
    x = g.input("x", [1, 4, 6, 6])
    g.output(g.node("ConvTranspose", x, g.weight(4, 3, kernel, kernel), strides=[2, 2]))
    path = tmp_path / "model"
    path.write_bytes(g.model(OPSET).SerializeToString())
    values = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)
    values[0, 1, 2, 3] = np.inf
    (ours,), (wanted,) = run(path, tmp_path, values), reference(path, values)
    finite = np.isfinite(ours)
    np.testing.assert_allclose(ours[finite], wanted[finite], rtol=1e-4, atol=1e-5)
    assert (differences(ours, wanted) == "") == exact


def run(path: Path, folder: Path, x: NDArray[Any]) -> list[NDArray[Any]]:
    target = parse_target("host")
    loaded = load_relax(path, Binding(), target)
    build_model(loaded.module, target, folder / "lib.so")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(x))
    return [tensor.numpy() for tensor in ([result] if len(loaded.outputs) == 1 else result)]


def reference(path: Path, x: NDArray[Any]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def differences(ours: NDArray[Any], wanted: NDArray[Any]) -> str:
    with np.errstate(all="ignore"):
        same = np.isclose(ours, wanted, rtol=1e-3, atol=1e-6, equal_nan=True)
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{int((~same).sum())} of {same.size}; at {at}: {ours[at]}, expected {wanted[at]}"


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("sizes", [(12, 20), (3, 9), (1, 5), (11, 4)])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_linear_resizing_is_what_onnxruntime_computes(
    mode: str, sizes: tuple[int, int], *, special: bool, tmp_path: Path
) -> None:
    g = GraphBuilder(seed=2)
    x = g.node("Relu", g.input("x", [2, 5, 6, 5]))
    y = g.node("Resize", x, "", "", g.ints(2, 5, *sizes), mode="linear", coordinate_transformation_mode=mode)
    g.output(g.node("Neg", y))
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    value = np.random.default_rng(3).normal(size=(2, 5, 6, 5)).astype(np.float32)
    if (
        special and "half_pixel" in mode and sizes != (1, 5)
    ):  # where no weight is zero: TVM leaves out terms with one
        value[0, 0, 2, 2], value[0, 1, 0, 0], value[1, 2, 5, 4] = np.nan, np.inf, np.inf
    # Where it is scheduled, rows are vectorised.
    (computed,) = built_outputs(loaded, [value], tmp_path, scheduled=True)
    (expected,) = reference_outputs(path, loaded, [value])
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-5)
    names = [kernel.name for kernel in primfunc_workloads(loaded.module)]
    assert len(names) == 1, names


REPEATS = {
    "asymmetric": "floor",
    "half_pixel": "round_prefer_floor",
    "pytorch_half_pixel": "round_prefer_ceil",
}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("mode", REPEATS)
@pytest.mark.parametrize("factors", [(2, 2), (3, 4), (1, 8), (2, 5)])
def test_nearest_resizing_by_whole_numbers_repeats_elements(
    mode: str, factors: tuple[int, int], tmp_path: Path
) -> None:
    g = GraphBuilder()
    x = g.input("x", [2, 5, 7, 16])
    scales = g.constant(np.array([1, 1, *factors], np.float32))
    options = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": REPEATS[mode]}
    g.output(g.node("Resize", x, "", scales, **options))
    path = tmp_path / "net.onnx"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    text = loaded.module.script()
    assert "//" in text
    assert not any(name in text for name in ("T.round", "T.floor(", "T.ceil"))
    values = [np.random.default_rng(1).standard_normal((2, 5, 7, 16)).astype(np.float32)]
    (output,) = built_outputs(loaded, values, tmp_path, scheduled=True)
    np.testing.assert_array_equal(output, reference_outputs(path, loaded, values)[0])


@pytest.mark.parametrize(
    ("mode", "nearest"), [("align_corners", "floor"), ("asymmetric", "ceil"), ("half_pixel", "floor")]
)
def test_other_nearest_resizing_repeats_nothing_evenly(mode: str, nearest: str, tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [1, 3, 8, 8])
    options = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": nearest}
    g.output(g.node("Resize", x, "", g.constant(np.array([1, 1, 2, 2], np.float32)), **options))
    path = tmp_path / "net.onnx"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    values = [np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)]
    (output,) = built_outputs(loaded, values, tmp_path, scheduled=True)
    np.testing.assert_array_equal(output, reference_outputs(path, loaded, values)[0])


def test_known_sizes_are_a_constant_and_no_kernel() -> None:
    """As a kernel, a thousand of them kept the import of torchvision's Mask R-CNN for minutes."""
    numbers = list(range(1, 1001))
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(relax.op.shape_to_tensor(relax.ShapeExpr(numbers)))
        builder.emit_func_output(result)
    legalized = relax.transform.LegalizeOps(CPU_RULES)(builder.get())
    assert [name.name_hint for name in legalized.functions] == ["main"]
    (binding,) = legalized["main"].body.blocks[0].bindings
    np.testing.assert_array_equal(binding.value.value.numpy(), numbers)
