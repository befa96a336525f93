"""Weights in fewer bytes: which are stored so, how kernels read them, and the artifact's report."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from onnx_reference import module_outputs

import tunefarm_tuning
from tunefarm_tuning import Precision, apply_history_best, extract_tasks, import_model
from tunefarm_tuning.compiler.model_comparison import storage_warnings
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.records import applicable_records
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.tasks.alternatives import find_alternatives, put_alternatives_in
from tunefarm_tuning.tvm.tasks.extract import kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.model import Model

HOST = parse_target("host")
ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
DOUBLE = onnx.TensorProto.DOUBLE
ROUNDED = (Precision.FLOAT16_WEIGHTS, Precision.BFLOAT16_WEIGHTS)


def network() -> onnx.ModelProto:
    """Two convolutions with a kernel in common, and a dense layer: 144 KiB, 144 KiB and 256 KiB of weights."""
    graph = GraphBuilder()
    x = graph.input("x", [1, 64, 8, 8])
    for _ in range(2):
        x = graph.node("Relu", graph.conv(x, 64, 64))
    rows = graph.node("Reshape", x, graph.ints(1, 4096))
    pooled = graph.node("Reshape", rows, graph.ints(16, 256))
    graph.output(graph.node("MatMul", pooled, graph.weight(256, 256)))
    return graph.model()


def quantised_network() -> onnx.ModelProto:
    """A convolution and a dense layer with weights of 8 bits times a scale per channel, the latter's for all of them."""
    graph = GraphBuilder()
    rng = np.random.default_rng(5)
    x = graph.input("x", [1, 64, 8, 8])
    kernel = rng.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8)
    scales = graph.constant(rng.uniform(1e-4, 1e-3, 64).astype(np.float32))
    weight = graph.node("DequantizeLinear", graph.constant(kernel), scales, axis=0)
    x = graph.node("Conv", x, weight, kernel_shape=[3, 3], pads=[1] * 4)
    shift = [graph.constant(rng.uniform(0.5, 1.5, 64).astype(np.float32)) for _ in range(4)]
    x = graph.node("Relu", graph.node("BatchNormalization", x, *shift))
    rows = graph.node("Reshape", x, graph.ints(16, 256))
    matrix = graph.constant(rng.integers(-128, 128, (256, 128)).astype(np.int8))
    dense = graph.node("DequantizeLinear", matrix, graph.constant(np.array(1e-3, np.float32)))
    graph.output(graph.node("MatMul", rows, dense))
    return graph.model()


def imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return import_model(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return imported(network(), tmp_path_factory.mktemp("precision"))


def loaded(model: Model, precision: Precision) -> RelaxNetwork:
    return load_relax(model.path, model.binding, HOST, precision)


def constants(module: tvm.IRModule) -> list[tuple[str, int]]:
    """Return dtype and elements of the network's large constants."""
    values = [node.value for node in walk(module["main"].body) if isinstance(node, tvm.ir.GenericConst)]
    sizes = [(str(value.dtype), int(np.prod([int(size) for size in value.shape]))) for value in values]
    return sorted(size for size in sizes if size[1] > 1024)


def run(module: tvm.IRModule, x: NDArray[np.float32], folder: Path) -> NDArray[np.float32]:
    (output,) = module_outputs(module, [x], folder)
    return output


def image(seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((1, 64, 8, 8)).astype(np.float32)


@pytest.mark.exhaustive
def test_what_is_not_asked_for_changes_nothing(model: Model) -> None:
    plain = [task.to_json() for task in extract_tasks(model)]
    assert [task.to_json() for task in extract_tasks(model, precision="as-model")] == plain
    assert {arg["dtype"] for task in plain for arg in task["workload"]["args"]} == {"float32"}


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("precision", ROUNDED)
def test_tasks_that_read_other_weights_are_others(model: Model, precision: Precision) -> None:
    plain = {task.workload.key for task in extract_tasks(model)}
    tasks = extract_tasks(model, precision=precision)
    reading = [task for task in tasks if precision.rounding in {arg.dtype for arg in task.workload.args}]
    assert len(reading) == 2, "the convolution, which both layers run, and the dense layer"
    assert not plain & {task.workload.key for task in reading}
    for task in reading:
        (weight,) = [arg for arg in task.workload.args if arg.constant]
        assert weight.dtype == precision.rounding
        assert task.workload.args[-1].dtype == "float32"


@pytest.mark.parametrize("precision", ROUNDED)
def test_the_constants_are_stored_so_and_widened_where_they_are_read(
    model: Model, precision: Precision, tmp_path: Path
) -> None:
    stored = loaded(model, precision)
    dtype = precision.rounding
    assert constants(stored.module) == [(dtype, 36864), (dtype, 36864), (dtype, 65536)]
    assert stored.storage.to_json() == {
        "stored": 3,
        "kept": 0,
        "bytes_before": 4 * 139264,
        "bytes_after": 2 * 139264,
    }
    readers = [kernel for kernel in primfunc_workloads(stored.module) if kernel.name.endswith(dtype)]
    assert [kernel.weight for kernel in readers] == [2, 1]
    for kernel in readers:
        text = kernel.module["main"].script()
        assert "widened" not in text, "no kernel keeps a widened copy"
        assert re.search(r'\* T\.Cast\("float32", main1\[', text), text
        assert {spec.dtype for spec in kernel_args(kernel.module) if not spec.constant} == {"float32"}
    expected = run(loaded(model, Precision.AS_MODEL).module, image(), tmp_path)
    results = run(stored.module, image(), tmp_path)
    size = float(np.sqrt(np.mean(expected**2)))
    error = float(np.abs(results - expected).max())
    assert 0 < error < {"float16": 5e-3, "bfloat16": 5e-2}[dtype] * size


def test_a_kernel_of_stored_weights_computes_with_them_as_rounded(model: Model, tmp_path: Path) -> None:
    """The same network with rounded weights in its file gives the same results, but for the order of sums."""
    rounded = onnx.load(model.path)
    for tensor in rounded.graph.initializer:
        value = onnx.numpy_helper.to_array(tensor)
        if value.size > 1024:
            value = value.astype(np.float16).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    expected = run(loaded(imported(rounded, tmp_path), Precision.AS_MODEL).module, image(), tmp_path)
    results = run(loaded(model, Precision.FLOAT16_WEIGHTS).module, image(), tmp_path)
    np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-5)


def test_winograds_convolution_takes_the_stored_weights(model: Model, tmp_path: Path) -> None:
    stored = loaded(model, Precision.FLOAT16_WEIGHTS)
    alternatives = find_alternatives(stored.module, HOST, stored.storage.kernels)
    assert alternatives
    (key,) = {alternative.workload_key for alternative in alternatives}
    expected = run(stored.module, image(), tmp_path)
    changed = put_alternatives_in(stored.module, alternatives, {key: alternatives[0].algorithm})
    assert {dtype for dtype, _ in constants(changed)} == {"float16", "float32"}
    results = run(changed, image(), tmp_path)
    np.testing.assert_allclose(results, expected, rtol=1e-3, atol=2e-4 * float(np.abs(expected).max()))


def test_weights_that_it_cannot_hold_stay(tmp_path: Path) -> None:
    graph = GraphBuilder()
    rng = np.random.default_rng(1)
    x = graph.input("x", [4, 128])
    for factor in (1.0, 1e6, 1e-7):
        weight = (rng.standard_normal((128, 128)) * factor).astype(np.float32)
        x = graph.node("MatMul", x, graph.constant(weight))
    graph.output(x)
    model = imported(graph.model(), tmp_path)
    half = loaded(model, Precision.FLOAT16_WEIGHTS)
    assert (half.storage.stored, half.storage.kept) == (1, 2), "one overflows, and one nearly vanishes"
    assert sorted(dtype for dtype, _ in constants(half.module)) == ["float16", "float32", "float32"]
    assert loaded(model, Precision.BFLOAT16_WEIGHTS).storage.kept == 0
    (warning,) = storage_warnings(Precision.FLOAT16_WEIGHTS, half.storage.to_json())
    assert warning.startswith("large weights that stay float32: 2 ")


@pytest.mark.exhaustive
def test_channels_are_judged_by_themselves(tmp_path: Path) -> None:
    """One output channel in 64 of a convolution and a matrix, weak or with a weak input channel."""
    graph = GraphBuilder()
    rng = np.random.default_rng(3)
    x = graph.input("x", [1, 64, 8, 8])
    for channel in ((0,), (slice(None), 0)):
        kernel = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
        kernel[channel] *= 1e-7
        x = graph.node("Conv", x, graph.constant(kernel), kernel_shape=[3, 3], pads=[1] * 4)
    rows = graph.node("Reshape", x, graph.ints(32, 128))
    for channel in ((slice(None), 0), (0,)):
        matrix = rng.standard_normal((128, 128)).astype(np.float32)
        matrix[channel] *= 1e-7
        rows = graph.node("MatMul", rows, graph.constant(matrix))
    graph.output(rows)
    stored = loaded(imported(graph.model(), tmp_path), Precision.FLOAT16_WEIGHTS)
    assert constants(stored.module) == [
        ("float16", 16384),
        ("float16", 36864),
        ("float32", 16384),
        ("float32", 36864),
    ], "a result is made of an output channel, and of all input channels"
    assert (stored.storage.stored, stored.storage.kept) == (2, 2)


@pytest.mark.exhaustive
def test_weights_of_parallel_branches_stay_apart(tmp_path: Path) -> None:
    """As one they would be float32 for the sake of one of them."""
    graph = GraphBuilder()
    x = graph.input("x", [16, 256])
    rng = np.random.default_rng(4)
    for factor in (1.0, 1e-7):
        weight = (rng.standard_normal((256, 36)) * factor).astype(np.float32)
        graph.output(graph.node("MatMul", x, graph.constant(weight)))
    model = imported(graph.model(), tmp_path)
    combined = [kernel.weight for kernel in primfunc_workloads(loaded(model, Precision.AS_MODEL).module)]
    assert sum(combined) < 4, "without the option they are combined"
    stored = loaded(model, Precision.FLOAT16_WEIGHTS)
    assert constants(stored.module) == [("float16", 9216), ("float32", 9216)]
    assert (stored.storage.stored, stored.storage.kept) == (1, 1)


@pytest.mark.exhaustive
def test_kernels_of_sizes_known_at_run_time_only_keep_their_weights(tmp_path: Path) -> None:
    graph = GraphBuilder()
    rows = graph.node(
        "Compress", graph.input("x", [10, 64]), graph.input("c", [10], onnx.TensorProto.BOOL), axis=0
    )
    product = graph.node("MatMul", rows, graph.weight(64, 128))
    graph.output(graph.node("ReduceMax", product, axes=[0]))
    stored = loaded(imported(graph.model(), tmp_path), Precision.FLOAT16_WEIGHTS)
    assert (stored.storage.stored, stored.storage.kept) == (0, 1)
    assert constants(stored.module) == [("float32", 8192)]


@pytest.mark.exhaustive
def test_small_and_other_constants_stay(tmp_path: Path) -> None:
    """A table that is added, and a matrix of 8 KiB."""
    graph = GraphBuilder()
    x = graph.input("x", [64, 256])
    moved = graph.node("Add", x, graph.weight(64, 256))
    graph.output(graph.node("MatMul", moved, graph.weight(256, 8)))
    stored = loaded(imported(graph.model(), tmp_path), Precision.FLOAT16_WEIGHTS)
    assert (stored.storage.stored, stored.storage.kept) == (0, 0)


def test_weights_of_a_quantised_model_are_stored_as_they_were(tmp_path: Path) -> None:
    model = imported(quantised_network(), tmp_path)
    stored_again = loaded(model, Precision.INT8_WEIGHTS)
    assert constants(stored_again.module) == [("int8", 32768), ("int8", 36864)]
    assert (stored_again.storage.stored, stored_again.storage.kept) == (2, 0)
    expected = run(loaded(model, Precision.AS_MODEL).module, image(), tmp_path)
    results = run(stored_again.module, image(), tmp_path)
    np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-5 * float(np.abs(expected).max()))
    alternatives = find_alternatives(stored_again.module, HOST, stored_again.storage.kernels)
    changed = put_alternatives_in(
        stored_again.module,
        alternatives,
        {alternative.workload_key: alternative.algorithm for alternative in alternatives},
    )
    assert alternatives
    results = run(changed, image(), tmp_path)
    np.testing.assert_allclose(results, expected, rtol=1e-3, atol=2e-4 * float(np.abs(expected).max()))


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("precision", [Precision.FLOAT16_WEIGHTS, Precision.INT8_WEIGHTS])
def test_an_artifact_of_tuned_kernels(precision: Precision, model: Model, tmp_path: Path) -> None:
    if precision is Precision.INT8_WEIGHTS:
        model = imported(quantised_network(), tmp_path)
    # Winograd's convolutions keep their weights float32.
    records = applicable_records(model, seed=4, precision=precision, alternatives=False)
    with apply_history_best(records):
        artifact = tunefarm_tuning.compile(
            model,
            output=tmp_path / "stored",
            precision=precision,
            baseline=False,
            limits=ANY_SPEED,
            goal_sec=0.0,  # no time for Winograd's, which has no record
        )
    assert len(artifact.report["coverage"]["hits"]) == len(records), artifact.report["coverage"]
    assert artifact.manifest["precision"] == precision.value
    assert artifact.manifest["tolerance"] == precision.rounding
    precision_report = artifact.report["precision"]
    before, after = precision_report["weights"]["bytes_before"], precision_report["weights"]["bytes_after"]
    assert after < 0.51 * before
    assert after < artifact.path.stat().st_size < before, "code and records take less than what is saved"
    stored, as_model = precision_report["accuracy"]["stored"], precision_report["accuracy"]["as_model"]
    assert as_model["max_rel_error"] < 1e-3
    assert stored["max_rel_error"] >= stored["mean_rel_error"] > 0
    if precision is Precision.FLOAT16_WEIGHTS:
        assert stored["mean_rel_error"] > 3 * as_model["mean_rel_error"]
    verified = tunefarm_tuning.verify(artifact.path, model)
    assert verified.ok
    # beyond what the network itself moves
    assert {output.rtol for output in verified.outputs} == {1e-2 if precision.rounding == "float16" else 0.0}


@pytest.mark.exhaustive
def test_where_nothing_is_stored_nothing_is_forgiven(tmp_path: Path) -> None:
    """A network of double precision keeps its weights, and the tolerance of its outputs."""
    graph = GraphBuilder()
    weight = graph.constant(np.random.default_rng(6).standard_normal((128, 64)))
    graph.output(graph.node("MatMul", graph.input("x", [4, 128], DOUBLE), weight), dtype=DOUBLE)
    model = imported(graph.model(), tmp_path)
    artifact = tunefarm_tuning.compile(
        model, output=tmp_path / "double", precision="bfloat16-weights", baseline=False, limits=ANY_SPEED
    )
    assert artifact.report["precision"]["weights"]["stored"] == 0
    assert any(
        "no weight is stored as bfloat16-weights" in warning for warning in artifact.report["warnings"]
    )
    assert artifact.manifest["tolerance"] == "float32"
    held_to = [
        output["rtol"] for group in artifact.report["checks"]["input_sets"] for output in group["outputs"]
    ]
    held_to += [output.rtol for output in tunefarm_tuning.verify(artifact.path, model).outputs]
    assert held_to == [0.0] * 4


def test_it_is_said_what_there_is(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="as-model, float16-weights, bfloat16-weights") as caught:
        tunefarm_tuning.compile(model, output=tmp_path / "net", precision="fp16")
    assert caught.value.code == "unknown-precision"
    with pytest.raises(InvalidInputError, match="is for CPUs") as caught:
        extract_tasks(model, "cuda/sm_90", precision="float16-weights")
    assert caught.value.code == "unsupported-precision"
