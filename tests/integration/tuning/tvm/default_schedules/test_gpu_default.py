"""A GPU's default schedules and graph, without a GPU: they build, and compute what unscheduled loops do.

``TUNEFARM_ALL_OPSETS=1`` builds every network of the zoo for both architectures, not only those that DLight stumbles over.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnx_models
import onnx_zoo
import pytest
import tvm
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnxruntime import InferenceSession
from tvm import relax, tirx

from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.gpu import limits_of_target
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.testing.workloads import sample_workload
from tunefarm_tuning.tvm.base.launches import launches_of
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.gpu import bind_threads, gpu_schedule, is_bound, with_gpu_schedules
from tunefarm_tuning.tvm.tasks.extract import kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform import passes
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

A100, H100, T4 = (parse_target(f"cuda/sm_{number}") for number in (80, 90, 75))
ANY_CPU = Target.from_json({"kind": "llvm", "opt-level": 1})
EVERY = os.environ.get("TUNEFARM_ALL_OPSETS") == "1"
# Those on whose kernels DLight's rules stop with an error.
NETS = onnx_zoo.names() if EVERY else ["log_sum_exp", "roi_align", "rotary"]
BUILT = ["half", *(onnx_zoo.names() if EVERY else [])]

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="machine code for GPUs needs nvcc")


def load(model: onnx.ModelProto, folder: Path, target: Target = A100) -> RelaxNetwork:
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    return load_relax(path, Binding(), target)


def zoo(name: str) -> onnx.ModelProto:
    return onnx_zoo.build(name, onnx_zoo.ways_of_writing(name)[-1])


def half_net() -> onnx.ModelProto:
    """A product of float16 with everything around it in float16 as well."""
    g = GraphBuilder(seed=3)
    x = g.input("x", [32, 96], TensorProto.FLOAT16)
    rng = np.random.default_rng(0)
    wide = g.constant(rng.normal(0, 0.1, (96, 128)).astype(np.float16))
    y = g.node("Softmax", g.node("Relu", g.node("MatMul", x, wide)), axis=-1)
    g.output(y, None, TensorProto.FLOAT16)
    return g.model(17)


def as_loops(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a GPU's kernel as one thread after the other would run it: before TVM lowers it, a schedule means that too."""
    text = func.script()
    text = re.sub(
        r"T\.thread_binding\(([^()]*|[^()]*\([^()]*\)[^()]*), thread=\"[^\"]*\"", r"T.serial(\1", text
    )
    text = re.sub(r"annotations=\{\"pragma[^}]*\}", "", text).replace(", )", ")")
    text = re.sub(r", scope=\"(shared|local|shared\.dyn)\"", "", text)
    return tvm.script.from_source(text)


def run(func: tirx.PrimFunc, arrays: list[np.ndarray]) -> list[np.ndarray]:
    library = tvm.tirx.build(
        tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), tvm_target(ANY_CPU)
    )
    args = [tvm.runtime.tensor(array) for array in arrays]
    library["main"](*args)
    return [arg.numpy() for arg in args]


@pytest.mark.parametrize("by_dlight", [True, False], ids=["dlight", "threads"])
@pytest.mark.parametrize("name", NETS)
def test_every_kernel_gets_threads_and_passes_tvms_checks(name: str, by_dlight: bool, tmp_path: Path) -> None:
    module = load(zoo(name), tmp_path).module
    scheduled = with_gpu_schedules(module, A100, tvm_target(A100), by_dlight=by_dlight)
    funcs = [func for func in scheduled.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert funcs
    assert all(map(is_bound, funcs))
    named = {str(name): func.with_attr("global_symbol", str(name)) for name, func in enumerate(funcs)}
    tvm.tirx.build(
        tvm.IRModule(named), tvm_target(A100)
    )  # verifies memory, writes the source, compiles nothing


@pytest.mark.parametrize(("target", "shared_bytes"), [(A100, 72 << 10), (T4, 0)])
def test_no_default_schedule_asks_for_more_than_the_gpu_has(target: Target, shared_bytes: int) -> None:
    """DLight's rule for products of float16 needs 72 KiB, and a block of sm_75 has 64 at most: there the next rule is taken."""
    product = sample_workload("matmul", n=128, dtype="float16")
    machine = tvm_target(target)
    with machine:
        scheduled = gpu_schedule(module_from_text(product.ir)["main"], machine)
    (launch,) = launches_of(scheduled, machine)
    assert launch.dynamic_bytes == shared_bytes
    assert launch.obstacle(limits_of_target(target)) == ""
    assert prod(launch.blocks) * launch.threads_per_block >= 128


@pytest.mark.matrix(every=2, each_value=False)
@needs_nvcc
@pytest.mark.parametrize("target", [A100, H100], ids=lambda target: str(target.get("arch")))
@pytest.mark.parametrize("name", BUILT)
def test_a_network_becomes_machine_code(name: str, target: Target, tmp_path: Path) -> None:
    model = half_net() if name == "half" else zoo(name)
    build_model(load(model, tmp_path, target).module, target, tmp_path / "net.so")
    assert b"\x7fELF" in (tmp_path / "net.so").read_bytes()[1:]


def test_default_schedules_compute_what_simple_loops_do(tmp_path: Path) -> None:
    g = GraphBuilder(seed=1)
    x = g.input("x", [1, 4, 6, 6])
    g.output(g.node("ReduceLogSumExp", g.node("Relu", g.conv(x, 4, 8)), keepdims=0))
    module = load(g.model(17), tmp_path).module
    machine = tvm_target(A100)
    for kernel in primfunc_workloads(module):
        if kernel.not_tunable is not None:
            continue
        func = kernel.module["main"]
        with machine:
            schedules = [gpu_schedule(func, machine), bind_threads(func)]
        arrays = random_inputs(kernel_args(kernel.module), seed=1)
        expected = run(func, arrays)
        for scheduled in schedules:
            outputs = run(as_loops(scheduled), arrays)
            names = [str(number) for number in range(len(outputs))]
            wrong = [
                comparison for comparison in compare_outputs(names, outputs, expected) if not comparison.ok
            ]
            assert not wrong, f"{kernel.name}: {wrong[0].message}"


@pytest.mark.parametrize("name", ["cnn", "half"])
def test_a_gpus_graph_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    model = half_net() if name == "half" else zoo(name)
    loaded = load(model, tmp_path)
    machine = relax.VirtualMachine(tvm.compile(loaded.module, tvm_target(ANY_CPU)), tvm.cpu())
    inputs = random_inputs(loaded.inputs, seed=1)
    result = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    outputs = [tensor.numpy() for tensor in ([result] if len(loaded.outputs) == 1 else result)]
    session = InferenceSession(str(tmp_path / "model"), providers=["CPUExecutionProvider"])
    feeds = {spec.name: array for spec, array in zip(loaded.inputs, inputs, strict=True)}
    expected = session.run(None, feeds)
    names = [spec.name for spec in loaded.outputs]
    rounding = "float16" if name == "half" else "float32"
    assert all(comparison.ok for comparison in compare_outputs(names, outputs, expected, rounding=rounding))


def test_products_of_float16_add_up_in_float32(tmp_path: Path) -> None:
    module = load(half_net(), tmp_path).module
    text = "\n".join(func.script() for func in module.functions.values() if isinstance(func, tirx.PrimFunc))
    assert 'T.Buffer((T.int64(32), T.int64(128)), "float16")' in text  # what comes out
    assert re.search(r"matmul\w* = T\.sblock_alloc_buffer\(\(T\.int64\(32\), T\.int64\(128\)\)\)", text)


def test_a_nan_goes_through(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [4])
    unit = g.constant(np.ones(1, np.float32))
    for number, y in enumerate((g.node("Relu", x), g.node("Max", x, unit), g.node("Min", unit, x))):
        g.output(g.node("Identity", y, out=f"y{number}"))
    loaded = load(g.model(17), tmp_path)
    machine = relax.VirtualMachine(tvm.compile(loaded.module, tvm_target(ANY_CPU)), tvm.cpu())
    values = np.array([np.nan, -1, 0, 2], np.float32)
    outputs = [tensor.numpy() for tensor in machine["main"](tvm.runtime.tensor(values))]
    wanted = [[np.nan, 0, 0, 2], [np.nan, 1, 1, 2], [np.nan, -1, 0, 1]]
    np.testing.assert_array_equal(outputs, np.array(wanted, np.float32))


def test_convolutions_are_channels_last(tmp_path: Path) -> None:
    kernels = primfunc_workloads(load(onnx_models.mobile_block(), tmp_path).module)
    convolutions = [kernel for kernel in kernels if "conv2d" in kernel.name]
    assert [kernel_args(kernel.module)[-1].shape[1:3] for kernel in convolutions] == [(16, 16)] * 3


def test_a_network_that_cannot_be_laid_out_anew_is_said_to_keep_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_layout(*_: object) -> tvm.IRModule:
        # As TVM's layout rules fail for some networks; no network that we know still makes them.
        raise tvm.error.InternalError("a layout rule\nfails")

    table = tuple(
        replace(graph_pass, step=failing_layout) if graph_pass.name == "ConvertLayout" else graph_pass
        for graph_pass in passes.PASSES
    )
    monkeypatch.setattr(passes, "PASSES", table)
    # A CPU has a second way of laying it out.
    assert load(zoo("conv"), tmp_path, ANY_CPU).warnings == ()
    (warning,) = load(zoo("conv"), tmp_path, A100).warnings
    assert warning.startswith("tensors keep the order of dimensions that the file gives them")


def test_projections_of_one_input_are_one_product(tmp_path: Path) -> None:
    kernels = primfunc_workloads(load(onnx_models.encoder_block(), tmp_path).module)
    assert any("strided_slice" in kernel.name for kernel in kernels)
