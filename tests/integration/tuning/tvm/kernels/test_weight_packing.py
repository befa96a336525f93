"""Weight pre-packing: which weights, their kernels, and networks of such kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx_models import GraphBuilder
from tvm import relax, te

import tunefarm_tuning
from tunefarm_tuning import Artifact, apply_history_best, import_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.records import applicable_records
from tunefarm_tuning.tvm.children.measure import HANDLERS
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel, build_model, put_in
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, pack, split_off_packing
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.tvm.tasks.extract import Kernel, kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TensorSpec

HOST = parse_target("host")
ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


def network() -> onnx.ModelProto:
    """A convolution that two calls share, with other weights; a dense layer; a product of two activations."""
    graph = GraphBuilder()
    x = graph.input("x", [1, 32, 8, 8])
    for _ in range(2):
        weight, bias = graph.weight(32, 32, 3, 3), graph.weight(32)
        x = graph.node("Relu", graph.node("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    rows = graph.node("Reshape", x, graph.ints(1, 32, 64))
    dense = graph.node("MatMul", rows, graph.weight(64, 96))
    graph.output(graph.node("MatMul", graph.node("Transpose", dense, perm=[0, 2, 1]), dense))
    return graph.model()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("packed") / "net.onnx"
    path.write_bytes(network().SerializeToString())
    return import_model(path)


@pytest.fixture(scope="module")
def kernels(model: Model) -> dict[str, Kernel]:
    loaded = load_relax(model.path, model.binding, HOST)
    return {kernel.name: kernel for kernel in primfunc_workloads(loaded.module)}


@pytest.fixture(scope="module")
def records(model: Model) -> tuple[TuningRecord, ...]:
    return applicable_records(model, seed=3)


def find(kernels: dict[str, Kernel], word: str, *, constant: bool = True) -> Kernel:
    """Return the first kernel of that name that has a weight, or that has none."""
    return next(
        kernel
        for name, kernel in kernels.items()
        if word in name and constant == any(spec.constant for spec in kernel_args(kernel.module))
    )


def scheduled(kernel: Kernel, seed: int) -> Iterator[PackedKernel]:
    space = DesignSpace(kernel.module, HOST)
    for config in space.config_space.sample(np.random.default_rng(seed), 4):
        yield split_off_packing(space.apply(config)[0].mod)


def run(kernel: PackedKernel, args: list[NDArray[np.float32]], path: Path) -> NDArray[np.float32]:
    build_kernel(kernel, HOST, path)
    library = tvm.runtime.load_module(str(path))
    tensors = [tvm.runtime.tensor(arg) for arg in args]
    for number in kernel.packings:
        plain = tensors[number]
        tensors[number] = tvm.runtime.empty(plain.shape, str(plain.dtype))
        library[f"pack_{number}"](plain, tensors[number])
    library["main"](*tensors)
    result: NDArray[np.float32] = tensors[-1].numpy()
    return result


def test_large_weights_are_known_and_nothing_else(kernels: dict[str, Kernel]) -> None:
    convolution = find(kernels, "conv2d")
    assert convolution.weight == 2, "both layers run it"
    image, weight, bias, result = kernel_args(convolution.module)
    assert weight.constant
    assert [image.constant, bias.constant, result.constant] == [False] * 3
    assert [spec.constant for spec in kernel_args(find(kernels, "matmul").module)] == [False, True, False]
    assert find(kernels, "matmul", constant=False)
    assert TensorSpec.from_json(weight.to_json()) == weight
    assert "constant" not in image.to_json(), "as it was written before there were such"


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("word", ["conv2d", "matmul"])
def test_a_packed_kernel_computes_the_same(kernels: dict[str, Kernel], word: str, tmp_path: Path) -> None:
    kernel = find(kernels, word)
    args = [value.astype(np.float32) for value in random_inputs(kernel_args(kernel.module), seed=1)]
    expected = run(PackedKernel(func=kernel.module["main"]), args, tmp_path / "plain.so")
    moved = 0
    for number, packed in enumerate(scheduled(kernel, seed=2)):
        assert set(packed.packings) <= {1}
        actual = run(packed, args, tmp_path / f"{number}.so")
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
        for n, packing in packed.packings.items():
            here = pack(args[n], packing)
            assert here.shape == packing.packed_shape
            moved += not np.array_equal(here.ravel(), args[n].ravel())
            middle = tuple(size // 2 for size in packing.shape)
            there = tuple(int(index) for index in packing.index_map.map_indices(list(middle)))
            assert here[there] == args[n][middle]
    assert moved, "some config wants another order"


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_weight_that_does_not_fill_the_vectors_of_a_kernel(tmp_path: Path, *, transposed: bool) -> None:
    graph = GraphBuilder()
    product = graph.node("Mul", graph.weight(70, 70), graph.input("x", [1]))
    graph.output(graph.node("Transpose", product, perm=[1, 0]) if transposed else product)
    path = tmp_path / "net.onnx"
    path.write_bytes(graph.model().SerializeToString())
    module = load_relax(path, Binding(), HOST).module
    (kernel,) = primfunc_workloads(module)
    args = [value.astype(np.float32) for value in random_inputs(kernel_args(kernel.module), seed=1)]
    weight = next(n for n, spec in enumerate(kernel_args(kernel.module)) if spec.constant)
    expected = run(PackedKernel(func=kernel.module["main"]), args, tmp_path / "plain.so")
    for number, packed in enumerate(scheduled(kernel, seed=2)):
        assert set(packed.packings) <= {weight}
        np.testing.assert_array_equal(run(packed, args, tmp_path / f"{number}.so"), expected)
        build_model(put_in(module, {kernel.name: packed}), HOST, tmp_path / "net.so")
        network = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "net.so")), tvm.cpu())
        output = network["main"](tvm.runtime.tensor(np.full(1, 2, np.float32)))
        plain = numpy_helper.to_array(graph.graph().initializer[0])
        np.testing.assert_array_equal(output.numpy(), 2 * (plain.T if transposed else plain))


def test_a_kernel_that_wants_gaps_between_its_weights_packs_them_itself(tmp_path: Path) -> None:
    weight, factor = te.placeholder((70, 70), name="weight"), te.placeholder((1,), name="factor")
    product = te.compute((70, 70), lambda i, j: weight[i, j] * factor[0], name="product")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([weight, factor, product]))
    args = [
        np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((70, 70), 1, (70, 70))
    ]
    copy = schedule.cache_read(schedule.get_sblock("product"), 0, "global")
    schedule.transform_layout(
        copy,
        ("write", 0),
        lambda i, j: ((j * 70 + i) // 64, (j * 70 + i) % 64),
        assume_injective_transform=True,
    )
    schedule.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
    kernel = split_off_packing(schedule.mod)
    assert not kernel.packings
    np.testing.assert_array_equal(run(kernel, args, tmp_path / "kernel.so"), args[0] * args[1])


def test_weights_of_double_precision_stay_such(tmp_path: Path) -> None:
    graph = GraphBuilder()
    weight = np.random.default_rng(0).normal(size=(64, 96))
    x = graph.input("x", [3, 64], TensorProto.DOUBLE)
    graph.output(graph.node("MatMul", x, graph.constant(weight)), None, TensorProto.DOUBLE)
    path = tmp_path / "net.onnx"
    path.write_bytes(graph.model().SerializeToString())
    module = load_relax(path, Binding(), HOST).module
    (kernel,) = primfunc_workloads(module)
    packed = next(candidate for candidate in scheduled(kernel, seed=2) if candidate.packings)
    build_model(put_in(module, {kernel.name: packed}), HOST, tmp_path / "net.so")
    network = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "net.so")), tvm.cpu())
    values = np.random.default_rng(1).normal(size=(3, 64))
    actual = network["main"](tvm.runtime.tensor(values)).numpy()
    np.testing.assert_allclose(actual, values @ weight, rtol=1e-10, atol=1e-10)


def check(artifact: Artifact, model: Model, records: tuple[TuningRecord, ...]) -> None:
    coverage = artifact.report["coverage"]
    assert len(coverage["hits"]) == len(records), coverage
    assert tunefarm_tuning.verify(artifact.path, model).ok


@pytest.mark.exhaustive
def test_a_network_of_packed_kernels(model: Model, records: tuple[TuningRecord, ...], tmp_path: Path) -> None:
    with apply_history_best(records):
        artifact = tunefarm_tuning.compile(model, "host", output=tmp_path / "net", limits=ANY_SPEED)
    check(artifact, model, records)


@pytest.mark.exhaustive
def test_packed_kernels_are_checked_on_a_device(
    model: Model, records: tuple[TuningRecord, ...], tmp_path: Path
) -> None:
    there = [replace(record, device_model="test") for record in records]
    with local_rpc() as farm, apply_history_best(there):
        artifact = tunefarm_tuning.compile(
            model, output=tmp_path / "net", device=farm.device, limits=ANY_SPEED
        )
    check(artifact, model, records)


def test_large_weights_are_timed_out_of_the_caches(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    """Each sample then has a few single calls, even if a call is short."""
    convolution = find(kernels, "conv2d")
    path = tmp_path / "kernel.so"
    build_kernel(next(scheduled(convolution, seed=1)), HOST, path)
    args = [spec.to_json() for spec in kernel_args(convolution.module)]
    large = [{**spec, "shape": [1 << 16]} if spec.get("constant") else spec for spec in args]
    request = {"path": str(path), "rival_sec": None, "kind": "cpu", "repeat": 10, "number": 1}
    limits = {"min_repeat_ms": 0.5, "max_timing_ms": 50.0}
    for specs in (args, large):
        reply = HANDLERS["measure_here"]({**request, **limits, "args": specs})
        assert len(reply["samples_sec"]) >= 3, reply
        assert all(0 < sample < 60 for sample in reply["samples_sec"])
