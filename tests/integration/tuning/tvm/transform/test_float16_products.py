"""`precision=float16` adds up in float16 on Arm CPUs that can, a thousand products at a time, and in float32 what these come to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import bfloat16_networks
import numpy as np
import onnx
import pytest
import tvm
from bfloat16_networks import conv, product
from emulated_arm import NEOVERSE_N1, emulated_machine
from llvm_cpus import cpus_of
from numpy.typing import NDArray
from onnx_models import GraphBuilder

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.reference.comparison import BFLOAT16
from tunefarm_tuning.target.dot_products import has_float16
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import cpu_features, tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.kernels.weight_packing import all_kernel_calls
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads, rounding_of
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision, parse_precision

TRIPLE = "aarch64-linux-gnu"
N1 = parse_target(f"llvm -mcpu=neoverse-n1 -mtriple={TRIPLE}")
NETWORKS = {
    **{name: bfloat16_networks.NETWORKS[name] for name in ("3x3", "odd channels", "matrices", "a row")},
    "depthwise": conv([1, 64, 9, 9], 64, 3, pads=[1] * 4, group=64),
    "a long sum": conv([1, 512, 3, 3], 16, 3, pads=[1] * 4),
    "a long row": product([2, 3072], 24),
}
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import tvm
from tvm import relax
for folder in sorted(Path(sys.argv[1]).iterdir()):
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    np.save(folder / "y.npy", machine["main"](tvm.runtime.tensor(np.load(folder / "x.npy"))).numpy())
"""


def load(model: onnx.ModelProto, folder: Path) -> RelaxNetwork:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return load_relax(folder / "model.onnx", Binding(), N1, Precision.FLOAT16)


def products(loaded: RelaxNetwork) -> dict[str, Any]:
    names = [kernel.name for kernel in primfunc_workloads(loaded.module)]
    return {name: loaded.module[name] for name in names if re.search("conv|matmul", name)}


def assembly(func: Any) -> str:
    scheduled = packed_default_schedule(func, N1).func.with_attr("global_symbol", "main")
    with tvm_target(N1), tvm.transform.PassContext(config=SPLIT_TAILS):
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=tvm_target(N1))
    return str(built.inspect_source("asm"))


def in_type(model: onnx.ModelProto, dtype: Any) -> onnx.ModelProto:
    """Return a network with weights, inputs and outputs of another type of floats."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor).astype(dtype)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*copy.graph.input, *copy.graph.output):
        value.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return copy


def exact(model: onnx.ModelProto, x: NDArray[Any]) -> NDArray[Any]:
    """Return the results of a network of one product in float64."""
    copy = in_type(model, np.float64)
    (result,) = onnx.reference.ReferenceEvaluator(copy).run(None, {"x": x.astype(np.float64)})
    return np.asarray(result)


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("name", NETWORKS)
def test_eight_products_are_added_at_once(name: str, tmp_path: Path) -> None:
    kernels = products(load(NETWORKS[name], tmp_path))
    assert kernels
    for func in kernels.values():
        assert rounding_of(func) == BFLOAT16
        text = assembly(func)
        assert re.search(r"^\tfmla\tv\d+\.8h", text, re.MULTILINE)
        assert not re.search(r"^\tfmla\tv\d+\.4s", text, re.MULTILINE)


def test_sums_in_float16_have_a_thousand_products_at_most(tmp_path: Path) -> None:
    loaded = load(NETWORKS["a long sum"], tmp_path)
    for func in products(loaded).values():
        channels = [int(size) for size in func.params[0].ty.shape][-1]
        assert 9 * channels <= 1024
    calls = [name for name, _ in all_kernel_calls(loaded.module) if "conv2d" in name]
    assert len(calls) == 8, "pieces of 64 channels"


@pytest.mark.exhaustive
def test_results_are_those_of_float64_but_for_rounding(tmp_path: Path) -> None:
    machine, runs, wanted = emulated_machine(NEOVERSE_N1), tmp_path / "runs", {}
    for name, model in NETWORKS.items():
        loaded = load(model, runs / name)
        x = np.random.default_rng(3).standard_normal(loaded.inputs[0].shape).astype(np.float32)
        np.save(runs / name / "x.npy", x)
        build_model(loaded.module, N1, runs / name / "lib.so")
        wanted[name] = exact(model, x)
    (tmp_path / "run.py").write_text(PROGRAM)
    machine.run(tmp_path / "run.py", runs)
    for name, reference in wanted.items():
        y = np.load(runs / name / "y.npy")
        assert (y.shape, y.dtype) == (reference.shape, np.float32)
        off = np.abs(y - reference) / np.sqrt(np.mean(np.square(reference)))
        assert 1e-4 < off.max() < 0.03, name
        assert np.sqrt(np.mean(np.square(off))) < 6e-3, name


@pytest.mark.parametrize(("channels", "dtype"), [(896, "float16"), (1032, "float32")])
def test_sums_of_groups_are_not_cut(channels: int, dtype: str, tmp_path: Path) -> None:
    loaded = load(conv([1, 2 * channels, 2, 2], 16, 1, group=2), tmp_path)
    (func,) = products(loaded).values()
    assert {str(param.ty.dtype.dtype) for param in func.params[:2]} == {dtype}
    storage = loaded.storage
    assert (storage.stored, storage.kept) == ((1, 0) if dtype == "float16" else (0, 1))


@pytest.mark.parametrize(("name", "pieces"), [("depthwise", 1), ("a long row", 3)])
def test_networks_in_float16_add_up_in_it_where_that_is_asked_for(
    name: str, pieces: int, tmp_path: Path
) -> None:
    model = in_type(NETWORKS[name], np.float16)
    loaded = load(model, tmp_path)
    for func in products(loaded).values():
        assert rounding_of(func) == BFLOAT16
    assert (loaded.storage.stored, loaded.storage.kept) == (pieces, 0)
    plain = load_relax(tmp_path / "model.onnx", Binding(), N1)
    assert {rounding_of(func) for func in products(plain).values()} == {""}


def test_weights_in_float16_whose_products_stay_float32_are_counted_so(tmp_path: Path) -> None:
    storage = load(in_type(conv([1, 2064, 2, 2], 16, 1, group=2), np.float16), tmp_path).storage
    assert (storage.stored, storage.kept) == (0, 1)


def test_activations_between_products_are_in_16_bits(tmp_path: Path) -> None:
    graph = GraphBuilder()
    x = graph.node("Relu", graph.conv(graph.input("x", [1, 16, 9, 9]), 16, 32))
    y = graph.node("Relu", graph.node("Add", x, graph.conv(x, 32, 32)))
    graph.output(graph.conv(y, 32, 16))
    arguments = [
        [str(param.ty.dtype.dtype) for param in func.params]
        for func in products(load(graph.model(), tmp_path)).values()
    ]
    assert all(dtypes[:2] == ["float16", "float16"] for dtypes in arguments)
    assert sum(dtypes[-1] == "float32" for dtypes in arguments) == 1, "the network's edge"


def test_weights_beyond_the_range_stay_float32(tmp_path: Path) -> None:
    graph = GraphBuilder()
    weight = graph.constant(np.full((16, 24), 1e5, np.float32))
    graph.output(graph.node("MatMul", graph.input("x", [4, 16]), weight))
    (func,) = products(load(graph.model(), tmp_path)).values()
    assert {str(param.ty.dtype.dtype) for param in func.params} == {"float32"}


def test_llvm_knows_the_same_cpus() -> None:
    for name, target, has in cpus_of(TRIPLE):
        assert has_float16(target) == ("fullfp16" in has), name


@pytest.mark.parametrize("cpu", ["neoverse-n1", "apple-a11"])
def test_llvm_takes_it_away_with_the_same_features(cpu: str) -> None:
    for feature in cpu_features(parse_target(f"llvm -mcpu={cpu} -mtriple={TRIPLE}")):
        target = parse_target(f"llvm -mcpu={cpu} -mattr=-{feature} -mtriple={TRIPLE}")
        assert has_float16(target) == ({"fullfp16", "neon"} <= cpu_features(target)), feature


@pytest.mark.parametrize(
    "target", ["llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu", f"llvm -mcpu=cortex-a72 -mtriple={TRIPLE}"]
)
def test_other_cpus_are_refused(target: str) -> None:
    with pytest.raises(InvalidInputError, match="needs an Arm CPU with arithmetic of float16"):
        parse_precision("float16", parse_target(target))
