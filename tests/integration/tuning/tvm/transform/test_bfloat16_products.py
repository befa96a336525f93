"""`precision=bfloat16` multiplies with the CPU's instruction, where it pays, and rounds what it says and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from bfloat16_networks import NETWORKS, conv, of_rounded_factors, product
from llvm_cpus import cpus_of
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from tvm import relax

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.target.dot_products import bfloat16_lanes
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, default_schedule
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision

ZEN4 = parse_target("llvm -mcpu=znver4")
AVX512 = parse_target("llvm -mcpu=cascadelake")
needs_the_instruction = pytest.mark.skipif(
    "avx512_bf16" not in cpu_flags(), reason="this CPU has no avx512_bf16"
)


def load(
    model: onnx.ModelProto, folder: Path, target: Target = ZEN4, precision: Precision = Precision.BFLOAT16
) -> RelaxNetwork:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return load_relax(path, Binding(), target, precision)


def kernels(loaded: RelaxNetwork) -> dict[str, tuple[str, ...]]:
    """Return the dtypes of the arguments of each kernel, results last."""
    return {
        kernel.name: tuple(str(param.ty.dtype.dtype) for param in loaded.module[kernel.name].params)
        for kernel in primfunc_workloads(loaded.module)
    }


def product_kernels(loaded: RelaxNetwork) -> list[Any]:
    return [loaded.module[name] for name in kernels(loaded) if "bfloat16_" in name]


def run(loaded: RelaxNetwork, folder: Path, *inputs: NDArray[Any]) -> NDArray[Any]:
    build_model(loaded.module, ZEN4, folder / "lib.so")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    output: NDArray[Any] = machine["main"](*(tvm.runtime.tensor(x) for x in inputs)).numpy()
    return output


def assembly(func: tvm.tirx.PrimFunc) -> str:
    scheduled = default_schedule(func, ZEN4).with_attr("global_symbol", "main")
    with tvm_target(ZEN4), tvm.transform.PassContext(config=SPLIT_TAILS):
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=tvm_target(ZEN4))
    return str(built.inspect_source("asm"))


@needs_the_instruction
@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("name", NETWORKS)
def test_factors_are_rounded_and_sums_are_not(name: str, tmp_path: Path) -> None:
    loaded = load(NETWORKS[name], tmp_path)
    x = np.random.default_rng(3).uniform(-1.5, 1.5, loaded.inputs[0].shape).astype(np.float32)
    ours = run(loaded, tmp_path, x)
    wanted = of_rounded_factors(NETWORKS[name], x)
    assert (ours.shape, ours.dtype) == (wanted.shape, np.float32)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.matrix(every=8, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_products_without_a_schedule_are_those_of_rounded_factors(name: str, tmp_path: Path) -> None:
    """On any CPU: what is summed, not how."""
    loaded = load(NETWORKS[name], tmp_path)
    assert product_kernels(loaded)
    x = np.random.default_rng(3).uniform(-1.5, 1.5, loaded.inputs[0].shape).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(loaded.module, target="llvm"), tvm.cpu())
    ours = machine["main"](tvm.runtime.tensor(x)).numpy()
    wanted = of_rounded_factors(NETWORKS[name], x)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.matrix(every=5, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_kernel_multiplies_with_the_instruction(name: str, tmp_path: Path) -> None:
    (func,) = product_kernels(load(NETWORKS[name], tmp_path))
    lines = [line for line in assembly(func).splitlines() if "vdpbf16ps" in line]
    assert lines
    assert all("%zmm" in line for line in lines)


def test_loops_over_products_do_nothing_else(tmp_path: Path) -> None:
    """Sums stay in registers, and factors are not converted."""
    (func,) = product_kernels(load(conv([1, 64, 28, 28], 96, 3, pads=[1] * 4), tmp_path))
    runs = re.split(r"^\S+:|^\tj\w+", assembly(func), flags=re.MULTILINE)
    multiplying = [run for run in runs if "vdpbf16ps" in run]
    assert multiplying
    for run_ in multiplying:
        assert not re.search(r"%zmm.*%rsp|%rsp.*%zmm|vpslld|vpsrld|vpmovdw|vcvtne", run_)


def residual() -> onnx.ModelProto:
    """A convolution, and two more around which its result goes."""
    graph = GraphBuilder()
    x = graph.node("Relu", graph.conv(graph.input("x", [1, 16, 9, 9]), 16, 32))
    y = graph.conv(graph.node("Relu", graph.conv(x, 32, 32)), 32, 32)
    y = graph.node("Relu", graph.node("Add", x, y))
    graph.output(graph.conv(y, 32, 16))
    return graph.model()


def test_activations_between_products_are_in_16_bits(tmp_path: Path) -> None:
    arguments = kernels(load(residual(), tmp_path))
    wide_results = [name for name, dtypes in arguments.items() if dtypes[-1] == "float32"]
    # The last convolution, and the network's own edges.
    assert len([name for name in wide_results if "conv2d" in name]) == 1
    for name, dtypes in arguments.items():
        if "conv2d" in name:
            assert dtypes[:2] == ("bfloat16", "bfloat16")
    (added,) = [dtypes for name, dtypes in arguments.items() if "widen" in name]
    assert added.count("bfloat16") == 4, "activations, weights, what goes around, and the result"


@needs_the_instruction
def test_a_residual_network_is_near_its_float32_form(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((1, 16, 9, 9)).astype(np.float32)
    narrow = run(load(residual(), tmp_path), tmp_path, x)
    (tmp_path / "wide").mkdir()
    wide = run(load(residual(), tmp_path, precision=Precision.AS_MODEL), tmp_path / "wide", x)
    error = np.abs(narrow - wide).max() / np.sqrt(np.mean(np.square(wide)))
    assert 1e-4 < error < 3e-2


def test_what_something_else_reads_keeps_its_float32_form(tmp_path: Path) -> None:
    graph = GraphBuilder()
    x = graph.node("Relu", graph.conv(graph.input("x", [1, 16, 9, 9]), 16, 32))
    graph.output(graph.conv(x, 32, 16))
    graph.output(graph.node("Exp", x))
    graph.output(x)
    arguments = kernels(load(graph.model(), tmp_path))
    assert not any("widen" in name for name in arguments)
    (first,) = [dtypes for name, dtypes in arguments.items() if "conv2d" in name and "relu" in name]
    assert first[-1] == "float32"


def depthwise(*, between: str = "Relu", read_again: bool = False) -> onnx.ModelProto:
    """A pointwise convolution, a step, a depthwise convolution, and another pointwise one."""
    graph = GraphBuilder()
    x = graph.node(between, graph.conv(graph.input("x", [1, 32, 9, 9]), 32, 48, kernel=1))
    y = graph.node("Conv", x, graph.weight(48, 1, 3, 3), pads=[1] * 4, group=48)
    graph.output(graph.conv(graph.node("Relu", y), 48, 16, kernel=1))
    if read_again:
        graph.output(graph.node("Softmax", x))
    return graph.model()


@needs_the_instruction
def test_depthwise_convolutions_read_16_bits(tmp_path: Path) -> None:
    loaded = load(depthwise(), tmp_path)
    (dtypes,) = [dtypes for name, dtypes in kernels(loaded).items() if "depthwise" in name]
    assert dtypes[0] == dtypes[-1] == "bfloat16"
    x = np.random.default_rng(3).standard_normal((1, 32, 9, 9)).astype(np.float32)
    narrow = run(loaded, tmp_path, x)
    (tmp_path / "wide").mkdir()
    wide = run(load(depthwise(), tmp_path, precision=Precision.AS_MODEL), tmp_path / "wide", x)
    assert 1e-4 < np.abs(narrow - wide).max() / np.sqrt(np.mean(np.square(wide))) < 3e-2


@pytest.mark.parametrize("how", [{"between": "Softmax"}, {"read_again": True}])
def test_depthwise_convolutions_of_what_is_needed_in_32_bits_read_them(
    how: dict[str, Any], tmp_path: Path
) -> None:
    arguments = kernels(load(depthwise(**how), tmp_path))
    assert any("bfloat16_conv2d" in name for name in arguments)
    assert not any("depthwise" in name for name in arguments)


@pytest.mark.parametrize(
    "model",
    [
        conv([1, 8, 6, 6], 8, 3, group=8),
        conv([1, 32, 6, 6], 32, 3, group=8),
        conv([1, 2, 6, 6], 16, 3),
        conv([1, 8, 6, 6], 32, 1),
        conv([1, 32, 6, 6], 4, 1),
        product([5, 8], 32),
        product([5, 64], 3),
    ],
    ids=["depthwise", "groups", "channels", "sum", "results", "short rows", "narrow"],
)
def test_what_would_not_gain_stays_float32(model: onnx.ModelProto, tmp_path: Path) -> None:
    loaded = load(model, tmp_path)
    assert all(set(dtypes) == {"float32"} for dtypes in kernels(loaded).values())
    assert loaded.storage.stored == 0


@pytest.mark.parametrize("value", [1e-41, np.inf, np.nan, 3.4e38])
def test_weights_that_it_cannot_represent_stay_float32(value: float, tmp_path: Path) -> None:
    graph = GraphBuilder()
    matrix = np.full((32, 16), value, np.float32)
    graph.output(graph.node("MatMul", graph.input("x", [4, 32]), graph.constant(matrix)))
    assert not product_kernels(load(graph.model(), tmp_path))


def test_as_model_has_no_bfloat16(tmp_path: Path) -> None:
    loaded = load(residual(), tmp_path, precision=Precision.AS_MODEL)
    assert all("bfloat16" not in dtypes for dtypes in kernels(loaded).values())


def test_a_kernel_of_another_cpu_has_no_default_schedule_with_the_instruction(tmp_path: Path) -> None:
    (func,) = product_kernels(load(NETWORKS["3x3"], tmp_path))
    try:
        schedule = str(default_schedule(func, AVX512))
    except NoDefaultSchedule:
        schedule = ""
    assert "tunefarm_dot" not in schedule


def test_llvm_knows_the_same_cpus() -> None:
    for name, target, has in cpus_of("x86_64-linux-gnu"):
        assert bfloat16_lanes(target) == (16 if "avx512bf16" in has else 0), name


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids"])
def test_llvm_takes_the_instruction_away_with_the_same_features(cpu: str) -> None:
    features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")
    for name in features(tvm_target(parse_target(f"llvm -mcpu={cpu}"))):
        target = parse_target(f"llvm -mcpu={cpu} -mattr=-{name}")
        has = "avx512bf16" in {str(feature) for feature in features(tvm_target(target))}
        assert bfloat16_lanes(target) == (16 if has else 0), name
