"""Quantised convolutions and products use int8 dot products where the CPU has them, with ONNX Runtime's results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
import tvm_ffi
from llvm_cpus import cpus_of
from numpy.typing import NDArray
from onnx_reference import unaligned_tensor
from quantised_forms import FORMS, SMALL_GROUPS, behind, bounded, pad
from quantised_networks import NETWORKS, Quantised, conv
from tvm import relax

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.target.dot_products import byte_products, dot_product_lanes
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, default_schedule
from tunefarm_tuning.tvm.kernels.dot_products import BYTES, packed
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.tvm.transform.weights.formats import as_int8
from tunefarm_tuning.workload.binding import Binding

ALL = {**NETWORKS, **FORMS}
AVX512 = parse_target("llvm -mcpu=cascadelake")
AVX = parse_target("llvm -mcpu=alderlake")
SKYLAKE = parse_target("llvm -mcpu=skylake-avx512")
AVX2 = parse_target("llvm -mcpu=x86-64-v3")
NO_AVX2 = parse_target("llvm -mcpu=sandybridge")
I8MM = parse_target("llvm -mcpu=neoverse-v2 -mtriple=aarch64-linux-gnu")
RUNNABLE = [
    pytest.param(
        target, marks=pytest.mark.skipif(flag not in cpu_flags(), reason=f"this CPU has no {flag}"), id=flag
    )
    for target, flag in ((AVX512, "avx512_vnni"), (AVX, "avx_vnni"), (SKYLAKE, "avx512bw"), (AVX2, "avx2"))
]
INSTRUCTIONS = {"512": (AVX512, "vpdpbusd", "%zmm"), "256": (AVX, "vpdpbusd", "%ymm")} | {
    "512 pairs": (SKYLAKE, "vpmaddwd", "%zmm"),
    "256 pairs": (AVX2, "vpmaddwd", "%ymm"),
}
"""Targets, what their kernels multiply with, and its registers."""
IN_FLOATS = {"512 pairs": {"groups of four", "depthwise, seven", "depthwise, twelve"}} | {
    "256 pairs": {"depthwise, seven"}
}
"""Of few products or few results in a group, which take no fewer instructions of two products each than of floats."""


def load(model: onnx.ModelProto, folder: Path, target: Target) -> RelaxNetwork:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return load_relax(path, Binding(), target)


def byte_kernels(loaded: RelaxNetwork) -> list[Any]:
    return [
        loaded.module[kernel.name] for kernel in primfunc_workloads(loaded.module) if "byte_" in kernel.name
    ]


def run(loaded: RelaxNetwork, folder: Path, target: Target, x: NDArray[Any]) -> NDArray[Any]:
    build_model(loaded.module, target, folder / "lib.so")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    output: NDArray[Any] = machine["main"](unaligned_tensor(x)).numpy()
    return output


def names(loaded: RelaxNetwork) -> list[str]:
    return [kernel.name for kernel in primfunc_workloads(loaded.module)]


def assembly(func: tvm.tirx.PrimFunc, target: Target) -> str:
    scheduled = default_schedule(func, target).with_attr("global_symbol", "main")
    with tvm_target(target), tvm.transform.PassContext(config=SPLIT_TAILS):
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=tvm_target(target))
    return str(built.inspect_source("asm"))


@pytest.mark.matrix(every=24, each_value=False)
@pytest.mark.parametrize("name", [*ALL, *SMALL_GROUPS])
@pytest.mark.parametrize("target", RUNNABLE)
def test_agrees_with_onnx_runtime(name: str, target: Target, tmp_path: Path) -> None:
    loaded = load({**ALL, **SMALL_GROUPS}[name], tmp_path, target)
    assert byte_kernels(loaded) or name in SMALL_GROUPS or name in set().union(*IN_FLOATS.values())
    (spec,) = loaded.inputs
    x = np.random.default_rng(3).uniform(-1.5, 1.5, spec.shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, {"x": x})
    ours = run(loaded, tmp_path, target, x)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    # A step of the last rounding is 0.03 at most; few results lie so near the middle between two that they differ.
    apart = np.abs(ours - theirs)
    assert apart.max() < 0.031
    assert np.mean(apart > 1e-4) < 0.02


@pytest.mark.matrix(every=36, each_value=False)
@pytest.mark.parametrize("width", INSTRUCTIONS)
@pytest.mark.parametrize("name", ALL)
def test_every_kernel_multiplies_with_the_instruction(name: str, width: str, tmp_path: Path) -> None:
    target, instruction, register = INSTRUCTIONS[width]
    loaded = load(ALL[name], tmp_path, target)
    kernels = byte_kernels(loaded)
    in_floats = [
        kernel for kernel in names(loaded) if "byte_" not in kernel and re.search("conv|matmul", kernel)
    ]
    is_in_floats = name in IN_FLOATS.get(width, ())
    assert (bool(kernels), bool(in_floats)) == (not is_in_floats, is_in_floats)
    for func in kernels:
        lines = [line for line in assembly(func, target).splitlines() if instruction in line]
        assert lines
        assert all(register in line for line in lines)


@pytest.mark.parametrize("name", SMALL_GROUPS)
def test_vectors_that_would_be_mostly_empty_stay_in_floats(name: str, tmp_path: Path) -> None:
    kernels = names(load(SMALL_GROUPS[name], tmp_path, AVX512))
    assert any("conv" in kernel for kernel in kernels)
    assert not any("byte_" in kernel for kernel in kernels)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", ["3x3 s8", "matrices", "QLinear"])
@pytest.mark.parametrize(
    "target",
    [NO_AVX2, parse_target("llvm -mcpu=znver3 -mattr=-avx2"), parse_target("raspberry-pi/4b-aarch64")],
)
def test_other_cpus_compute_in_floats(name: str, target: Target, tmp_path: Path) -> None:
    assert not byte_kernels(load(NETWORKS[name], tmp_path, target))


def test_a_kernel_of_another_cpu_has_no_default_schedule_with_the_instruction(tmp_path: Path) -> None:
    (func,) = byte_kernels(load(NETWORKS["3x3 u8"], tmp_path, AVX512))
    try:
        schedule = str(default_schedule(func, AVX2))
    except NoDefaultSchedule:
        schedule = ""
    assert "vpdpbusd" not in schedule
    assert "pmadd" not in schedule


@pytest.mark.parametrize("target", [AVX512, I8MM])
def test_they_are_tuning_tasks(target: Target, tmp_path: Path) -> None:
    loaded = load(NETWORKS["3x3 s8"], tmp_path, target)
    kernels = [kernel for kernel in primfunc_workloads(loaded.module) if "byte_" in kernel.name]
    assert [kernel.not_tunable for kernel in kernels] == [None] * len(byte_kernels(loaded))
    assert kernels


@pytest.mark.parametrize("quantised", [True, False], ids=["bytes", "floats"])
@pytest.mark.parametrize(("padding", "is_step"), [("same", False), ("zeros", False), ("number", True)])
def test_zeros_are_padded_by_the_convolution(
    padding: str, is_step: bool, quantised: bool, tmp_path: Path
) -> None:
    graph = Quantised()
    x = graph.input("x", [1, 16, 10, 10])
    x = graph.rounded(x, 0.011, np.uint8) if quantised else graph.node("Sigmoid", x)
    how = {"auto_pad": "SAME_LOWER"} if padding == "same" else {}
    x = x if padding == "same" else pad(None if padding == "zeros" else 0.22)(graph, x)
    weights = graph.weights([24, 16, 3, 3], 0) if quantised else graph.weight(24, 16, 3, 3)
    graph.output(graph.node("Conv", x, weights, kernel_shape=[3, 3], strides=[2, 2], **how))
    kernels = names(load(graph.model(), tmp_path, AVX512))
    assert any("pad" in kernel for kernel in kernels) is is_step
    assert any("conv2d" in kernel for kernel in kernels)


def test_weights_that_are_no_integers_stay(tmp_path: Path) -> None:
    graph = Quantised()
    x = graph.rounded(graph.input("x", [1, 8, 6, 6]), 0.011, np.uint8)
    graph.output(graph.node("Conv", x, graph.weight(8, 8, 3, 3), kernel_shape=[3, 3]))
    assert not byte_kernels(load(graph.model(), tmp_path, AVX512))


def average(graph: Quantised, x: str) -> Any:
    return graph.node("AveragePool", x, kernel_shape=[2, 2])


def scaled_down(graph: Quantised, x: str) -> Any:
    return graph.node("Mul", x, graph.number(-0.5))


@pytest.mark.parametrize(
    "step",
    [average, scaled_down, pad(0.0051), pad(40.0), pad(-np.inf), bounded(0.0051, 6.0), bounded(3.0, 6.0)],
)
@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["bytes", "pairs"])
def test_steps_whose_results_are_no_steps_of_the_scale_stay(
    step: Any, target: Target, tmp_path: Path
) -> None:
    """In the pairs' 16 bits there is room beyond the 256 steps, but sums would not fit into 32."""
    assert not byte_kernels(load(behind(step), tmp_path, target))


def largest(graph: Quantised, x: str) -> Any:
    return graph.node("MaxPool", x, kernel_shape=[2, 2])


def twice(graph: Quantised, x: str) -> Any:
    return graph.node("Concat", x, x, axis=1)


def enlarged(graph: Quantised, x: str) -> Any:
    sizes = graph.constant(np.array([1, 1, 2, 2], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.node("Resize", x, "", sizes, **how)


@pytest.mark.parametrize(("step", "operator"), [(largest, "pool"), (twice, "concat"), (enlarged, "resize")])
def test_steps_between_quantised_tensors_read_bytes(step: Any, operator: str, tmp_path: Path) -> None:
    def between(graph: Quantised, x: str) -> Any:
        first = graph.node("Conv", x, graph.weights([16, 16, 3, 3], 0), kernel_shape=[3, 3])
        return graph.rounded(step(graph, graph.rounded(first, 0.02, np.uint8)), 0.013, np.uint8)

    depth = 32 if step is twice else 16
    loaded = load(behind(between, depth=depth), tmp_path, AVX512)
    (func,) = (
        loaded.module[kernel.name] for kernel in primfunc_workloads(loaded.module) if operator in kernel.name
    )
    assert str(func.params[0].ty.dtype.dtype) in ("uint8", "int8")


def test_activations_are_rounded_to_the_type_that_the_instruction_takes(tmp_path: Path) -> None:
    """Else each product would shift them first. What the network hands out keeps its type."""
    graph = Quantised()
    q = graph.round(graph.input("x", [1, 16, 10, 10]), 0.011, np.int8)
    x = graph.float(q, 0.011, np.int8)
    y = graph.node("Conv", x, graph.weights([16, 16, 1, 1], 0), kernel_shape=[1, 1])
    graph.output(graph.node("Add", y, x))
    within = load(graph.model(), tmp_path, AVX512)
    graph.output(q, [1, 16, 10, 10], onnx.TensorProto.INT8)
    handed_out = load(graph.model(), tmp_path, AVX512)
    for loaded, dtype in ((within, "uint8"), (handed_out, "int8")):
        dtypes = {
            str(param.ty.dtype.dtype)
            for kernel in primfunc_workloads(loaded.module)
            for param in loaded.module[kernel.name].params
            if len(param.ty.shape) == 4 and "int8" in str(param.ty.dtype.dtype)
        }
        assert dtype in dtypes
        assert ("int8" in dtypes) is (dtype == "int8")
    assert not any("byte_dot_input" in str(func) for func in byte_kernels(within))


@pytest.mark.parametrize(("channels", "columns", "steps"), [(3, 3, 3), (3, 7, 6), (1, 3, 1), (5, 2, 3)])
def test_columns_of_few_channels_share_instructions(
    channels: int, columns: int, steps: int, tmp_path: Path
) -> None:
    model = conv([1, channels, 12, 12], 16, columns, np.uint8)
    (func,) = byte_kernels(load(model, tmp_path, AVX512))
    packed_shapes = [list(map(int, param.ty.shape)) for param in func.params]
    assert [1, columns, 1, steps, 64] in packed_shapes


@pytest.mark.timeout(60)
def test_a_tensor_that_is_joined_with_itself_again_and_again_is_looked_through_once(tmp_path: Path) -> None:
    def halves(graph: Quantised, x: str) -> Any:
        numbers = [graph.constant(np.array([number])) for number in (0, 16, 1, 2)]
        for _ in range(24):
            x = graph.node("Slice", twice(graph, x), *numbers)
        return twice(graph, x)

    loaded = load(behind(halves), tmp_path, AVX512)
    assert byte_kernels(loaded)
    assert names(loaded).count("concatenate") <= 25


def test_a_padding_of_minus_infinity_leaves_other_products_integers(tmp_path: Path) -> None:
    def padded(graph: Quantised, x: str) -> Any:
        first = graph.node("Conv", x, graph.weights([16, 16, 3, 3], 0), kernel_shape=[3, 3])
        return graph.node(
            "MaxPool", pad(-np.inf)(graph, graph.rounded(first, 0.02, np.uint8)), kernel_shape=[3, 3]
        )

    assert byte_kernels(load(behind(padded), tmp_path, AVX512))


@pytest.mark.parametrize(("shape", "weights"), [([1, 1, 5, 8], [1, 1, 8, 20]), ([2, 3, 5, 8], [2, 3, 8, 20])])
def test_products_by_several_matrices_stay_in_floats(
    shape: list[int], weights: list[int], tmp_path: Path
) -> None:
    graph = Quantised()
    x = graph.rounded(graph.input("x", shape), 0.011, np.uint8)
    graph.output(graph.node("MatMul", x, graph.weights(weights, None)))
    assert not byte_kernels(load(graph.model(), tmp_path, AVX512))


@pytest.mark.parametrize("value", [1e-40, np.inf, np.nan])
@pytest.mark.parametrize("rounded", [False, True], ids=["floats", "quantised"])
def test_weights_with_numbers_out_of_the_ordinary_stay_in_floats(
    rounded: bool, value: float, tmp_path: Path
) -> None:
    graph = Quantised()
    x = graph.input("x", [1, 8, 6, 6])
    x = graph.rounded(x, 0.011, np.uint8) if rounded else x
    kernel = graph.rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
    matrix = graph.rng.standard_normal((4, 5)).astype(np.float32)
    kernel[0, 0, 0, 0] = matrix[0, 0] = value
    y = graph.node("Conv", x, graph.constant(kernel), kernel_shape=[3, 3])
    y = graph.rounded(y, 0.011, np.uint8) if rounded else y
    graph.output(graph.node("MatMul", y, graph.constant(matrix)))
    assert not byte_kernels(load(graph.model(), tmp_path, AVX512))


def test_weights_are_packed_four_products_of_each_lane_side_by_side() -> None:
    weights = np.arange(5 * 18, dtype=np.int8).reshape(5, 18)
    packed_weights = packed(weights, 16, BYTES.products)
    assert packed_weights.shape == (2, 2, 64)
    for index, value in np.ndenumerate(weights):
        product_, result = index
        assert packed_weights[result // 16, product_ // 4, result % 16 * 4 + product_ % 4] == value
    assert int(np.count_nonzero(packed_weights)) == int(np.count_nonzero(weights))


def test_integers_are_found_whatever_their_largest_is() -> None:
    rng = np.random.default_rng(1)
    for most in (127, 90, 3, 1):
        steps = rng.integers(-most, most + 1, (40, 6)).astype(np.int8)
        scale = rng.uniform(1e-3, 1, 6).astype(np.float32)
        converted = as_int8((steps * scale).astype(np.float32), 1)
        assert converted is not None
        np.testing.assert_allclose(converted[0] * converted[1], steps * scale, rtol=1e-6)


@pytest.mark.parametrize(
    ("cpu", "instruction", "key"),
    [
        ("cascadelake", "avx512vnni", "dot16"),
        ("znver5", "avx512vnni", "dot16"),
        ("alderlake", "avxvnni", "dot8"),
        ("skylake-avx512", "avx512bw", "pair16"),
        ("znver3", "avx2", "pair8"),
    ],
)
def test_llvm_takes_the_instruction_away_with_the_same_features(cpu: str, instruction: str, key: str) -> None:
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")
    for name in features(tvm_target(parse_target(f"llvm -mcpu={cpu}"))):
        target = parse_target(f"llvm -mcpu={cpu} -mattr=-{name}")
        own = byte_products(target)
        has = instruction in {str(feature) for feature in features(tvm_target(target))}
        assert (own is not None and own.key == key) is has, name


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        ("llvm -mcpu=sapphirerapids -mattr=-amx-tile,-avx512bf16,-avx512fp16", 16),
        ("llvm -mcpu=cascadelake -mattr=-avx512bw,-avx512vl,-avx512dq,-avx512cd", 16),
        ("llvm -mcpu=skylake-avx512 -mattr=+avx512vnni", 16),
        ("llvm -mcpu=skylake-avx512 -mattr=+avxvnni", 8),
        ("llvm -mcpu=alderlake -mattr=-fma,-f16c", 8),
        ("llvm -mcpu=x86-64-v3 -mattr=+avxvnni", 8),
    ],
)
def test_attributes_that_leave_or_add_the_instruction(target: str, lanes: int, tmp_path: Path) -> None:
    machine = parse_target(target)
    assert dot_product_lanes(machine) == lanes
    (func,) = byte_kernels(load(NETWORKS["3x3 s8"], tmp_path, machine))
    assert "vpdpbusd" in assembly(func, machine)


def test_sums_stay_in_registers(tmp_path: Path) -> None:
    model = conv([1, 64, 28, 28], 96, 3, np.uint8, pads=[1] * 4)
    for target, instruction, _ in INSTRUCTIONS.values():
        (func,) = byte_kernels(load(model, tmp_path, target))
        # Blocks without jumps: those that multiply are the bodies of the loops over the products.
        runs = re.split(r"^\S+:|^\tj\w+", assembly(func, target), flags=re.MULTILINE)
        multiplying = [run for run in runs if instruction in run]
        assert multiplying
        assert not any(re.search(r"%[yz]mm.*%rsp|%rsp.*%[yz]mm", run) for run in multiplying)


def test_llvm_knows_the_same_cpus() -> None:
    for name, target, has in cpus_of("x86_64-linux-gnu"):
        keys = {"avx512vnni": "dot16", "avxvnni": "dot8", "avx512bw": "pair16", "avx2": "pair8"}
        wanted = next((key for feature, key in keys.items() if feature in has), None)
        if "avx512f" in has and "avx512bw" not in has:
            wanted = None  # a Xeon Phi has twice the floats in a vector
        own = byte_products(target)
        assert (own and own.key) == wanted, name
