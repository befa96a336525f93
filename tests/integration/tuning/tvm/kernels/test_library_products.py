"""oneDNN has the results of our own kernels, whatever is fused with a product; what it cannot compute is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_reference import module_outputs

from tunefarm_tuning import import_model
from tunefarm_tuning.artifact.onednn_library import load_onednn
from tunefarm_tuning.target.dot_products import bfloat16_lanes
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.codegen.onednn import why_no_calls
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.kernels.library_products import (
    LibraryProduct,
    library_kernel,
    match_library_product,
    weights_key,
)
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.tasks.alternatives import put_alternatives_in
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.tasks.library_alternatives import find_library_alternatives
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.precision import Precision

CPU = parse_target("llvm -num-cores=2")
pytestmark = pytest.mark.skipif(
    bool(why_no_calls(CPU)) or not load_onednn(), reason="oneDNN is for x86 CPUs, from tunefarm[onednn]"
)


def network(shape: list[int], nodes: list[onnx.NodeProto], weights: dict[str, list[int]]) -> onnx.ModelProto:
    """Return a network of an input ``x``, whose last node is the output; weights are random."""
    rng = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array((rng.normal(0.0, 1.0, size) / 8).astype(np.float32), name)
        for name, size in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def conv_net(
    after: str = "relu", *, shape: tuple[int, ...] = (1, 16, 15, 13), out: int = 24, **attributes: object
) -> onnx.ModelProto:
    """Return a convolution with a bias and other steps after it."""
    kernel = attributes.setdefault("kernel_shape", [3, 3])
    group = int(str(attributes.get("group", 1)))
    weights = {"w": [out, shape[1] // group, *kernel], "b": [out]}  # type: ignore[misc]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes)]
    match after:
        case "relu":
            nodes.append(helper.make_node("Relu", ["c"], ["y"]))
        case "residual":
            weights["w2"] = weights["w"]
            nodes.append(helper.make_node("Conv", ["x", "w2"], ["r"], **attributes))
            nodes.append(helper.make_node("Add", ["r", "c"], ["a"]))
            nodes.append(helper.make_node("Relu", ["a"], ["y"]))
        case "silu":
            nodes.append(helper.make_node("Sigmoid", ["c"], ["s"]))
            nodes.append(helper.make_node("Mul", ["s", "c"], ["y"]))
        case "clip":
            nodes += [
                helper.make_node("Constant", [], ["low"], value_float=0.1),
                helper.make_node("Constant", [], ["high"], value_float=0.5),
                helper.make_node("Clip", ["c", "low", "high"], ["y"]),
            ]
        case "sin":
            nodes.append(helper.make_node("Sin", ["c"], ["y"]))
    return network(list(shape), nodes, weights)


def dense_net(rows: tuple[int, ...] = (1, 17), depth: int = 40, out: int = 36) -> onnx.ModelProto:
    """Return a product by a matrix, a bias and GELU, as PyTorch exports it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Constant", [], ["root"], value_float=2.0**0.5),
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Div", ["a", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["a", "f"], ["g"]),
        helper.make_node("Mul", ["g", "half"], ["y"]),
    ]
    return network([*rows, depth], nodes, {"w": [depth, out], "b": [out]})


def prepared(
    model: onnx.ModelProto, folder: Path, target: Target = CPU, precision: Precision = Precision.AS_MODEL
) -> tvm.IRModule:
    path = folder / "net.onnx"
    onnx.save(model, path)
    held = import_model(path)
    return load_relax(held.path, held.binding, target, precision).module


def products_of(module: tvm.IRModule) -> list[LibraryProduct]:
    matches = [match_library_product(module[kernel.name]) for kernel in primfunc_workloads(module)]
    return [product for product in matches if product is not None]


def by_library(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    alternatives = find_library_alternatives(module, target, ())
    assert alternatives
    chosen = {alternative.workload_key: alternative.algorithm for alternative in alternatives}
    return put_alternatives_in(module, alternatives, chosen)


def only_by_library(func: tvm.tirx.PrimFunc, product: LibraryProduct, *, slices: int) -> tvm.tirx.PrimFunc:
    """Return the kernel with nothing to do where the library does not compute it."""
    nothing = tvm.tirx.PrimFunc(list(func.params), tvm.tirx.Evaluate(tvm.tirx.const(0, "int32")))
    return library_kernel(nothing, product, slices=slices)


FORMS = {
    "3x3": conv_net(pads=[1] * 4),
    "strides": conv_net(pads=[1] * 4, strides=[2, 2]),
    "uneven padding": conv_net(pads=[0, 0, 1, 1], strides=[2, 2]),
    "even kernel": conv_net(kernel_shape=[2, 2], pads=[0] * 4),
    "7x7": conv_net(shape=(1, 3, 21, 22), kernel_shape=[7, 7], pads=[3] * 4, strides=[2, 2]),
    "1x1": conv_net(kernel_shape=[1, 1]),
    "1x1 of stride 2": conv_net(kernel_shape=[1, 1], strides=[2, 2]),
    "1x1 of stride 2, batch": conv_net(shape=(3, 16, 10, 12), kernel_shape=[1, 1], strides=[2, 2]),
    "3x3 of stride 3, batch": conv_net(shape=(7, 16, 11, 14), pads=[1, 1, 0, 0], strides=[3, 3]),
    "1x5": conv_net(kernel_shape=[1, 5], pads=[0, 2, 0, 2]),
    "dilation": conv_net(pads=[2] * 4, dilations=[2, 2]),
    "batch": conv_net(shape=(3, 16, 9, 9), pads=[1] * 4),
    "one row": conv_net(shape=(1, 16, 1, 40), kernel_shape=[1, 3], pads=[0, 1, 0, 1]),
    "odd channels": conv_net(shape=(1, 13, 11, 11), out=19, pads=[1] * 4),
    "residual": conv_net("residual", pads=[1] * 4),
    "silu": conv_net("silu", pads=[1] * 4),
    "clip": conv_net("clip", pads=[1] * 4),
    "dense": dense_net(),
    "dense, one row": dense_net(rows=(1,)),
    "dense, odd": dense_net(rows=(2, 9), depth=33, out=35),
    "dense, ragged": dense_net(depth=200, out=109),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["strides", "residual", "dense"])
def test_a_network_has_the_results_of_its_kernels_own_loops(name: str, tmp_path: Path) -> None:
    module = prepared(FORMS[name], tmp_path)
    x = np.random.default_rng(1).normal(size=_input_shape(FORMS[name])).astype(np.float32)
    (own,), (library,) = (module_outputs(each, [x], tmp_path) for each in (module, by_library(module, CPU)))
    np.testing.assert_allclose(library, own, rtol=1e-4, atol=1e-5)


@pytest.mark.matrix(every=24, each_value=False)
@pytest.mark.parametrize("name", FORMS)
def test_the_library_computes_every_slice(name: str, tmp_path: Path) -> None:
    _check_kernels(prepared(FORMS[name], tmp_path), CPU, tmp_path, slices=(1, 2, 5), tolerance=1e-5)


@pytest.mark.parametrize("name", ["strides", "1x1", "residual", "silu", "clip", "dense, odd"])
def test_the_library_computes_in_bfloat16(name: str, tmp_path: Path) -> None:
    target = detect_host_target()
    if not bfloat16_lanes(target):
        pytest.skip("this CPU has no dot products of bfloat16")
    module = prepared(FORMS[name], tmp_path, target, Precision.BFLOAT16)
    _check_kernels(module, target, tmp_path, slices=(2,), tolerance=1e-2)


def _check_kernels(
    module: tvm.IRModule, target: Target, folder: Path, *, slices: Sequence[int], tolerance: float
) -> None:
    """Compare each kernel that is a product with itself, computed by the library alone."""
    checked = 0
    for kernel in primfunc_workloads(module):
        func = kernel.module["main"]
        product = match_library_product(func)
        if product is None:
            continue
        arrays = [_random(param) for param in func.params[:-1]]
        own = _result(default_schedule(func, target), arrays, target, folder / f"{kernel.name}.so")
        key = tvm.runtime.tensor(weights_key(arrays[product.weights].numpy()))
        for count in slices:
            path = folder / f"{kernel.name}-{count}.so"
            result = _result(only_by_library(func, product, slices=count), [*arrays, key], target, path)
            np.testing.assert_allclose(result / np.abs(own).max(), own / np.abs(own).max(), atol=tolerance)
        checked += 1
    assert checked


def _result(
    func: tvm.tirx.PrimFunc, arrays: list[tvm.runtime.Tensor], target: Target, path: Path
) -> NDArray[np.float64]:
    build_kernel(PackedKernel(func=func), target, path)
    out = func.params[-1]
    shape, dtype = [int(size) for size in out.ty.shape], str(out.ty.dtype.dtype)
    result = tvm.runtime.tensor(np.zeros(shape, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    tvm.runtime.load_module(str(path))["main"](*arrays, result)
    values: NDArray[np.float64] = result.numpy().astype(np.float64)
    return values


def _random(param: tvm.tirx.Var) -> tvm.runtime.Tensor:
    values = (
        np.random.default_rng(2).normal(0.0, 0.5, [int(size) for size in param.ty.shape]).astype(np.float32)
    )
    is_narrow = str(param.ty.dtype.dtype) == "bfloat16"
    return tvm.runtime.tensor(values.astype(ml_dtypes.bfloat16) if is_narrow else values)


def _input_shape(model: onnx.ModelProto) -> list[int]:
    return [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]


@pytest.mark.exhaustive
def test_weights_are_told_apart_by_their_values(tmp_path: Path) -> None:
    module = prepared(FORMS["dense"], tmp_path)
    func = next(kernel.module["main"] for kernel in primfunc_workloads(module))
    product = match_library_product(func)
    assert product is not None
    path = tmp_path / "kernel.so"
    build_kernel(PackedKernel(func=only_by_library(func, product, slices=2)), CPU, path)
    run = tvm.runtime.load_module(str(path))["main"]
    arrays = [_random(param) for param in func.params]
    weights = arrays[product.weights]
    results: list[NDArray[np.float32]] = []
    for factor in (1.0, 2.0):  # at the same address
        weights.copyfrom(weights.numpy() * np.float32(factor))
        run(*arrays[:-1], tvm.runtime.tensor(weights_key(weights.numpy())), arrays[-1])
        results.append(arrays[-1].numpy().copy())
    assert np.abs(results[0] - results[1]).max() > 0.1


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("name", ["depthwise", "unknown step"])
def test_what_the_library_cannot_compute_whole_is_left_alone(name: str, tmp_path: Path) -> None:
    model = (
        conv_net("sin", pads=[1] * 4) if name == "unknown step" else conv_net(out=16, group=16, pads=[1] * 4)
    )
    assert products_of(prepared(model, tmp_path)) == []


@pytest.mark.exhaustive
def test_without_the_library_kernels_run_loops_of_their_own(tmp_path: Path) -> None:
    module = by_library(prepared(FORMS["3x3"], tmp_path), CPU)
    x = np.ones(_input_shape(FORMS["3x3"]), np.float32)
    (expected,) = module_outputs(module, [x], tmp_path)
    np.save(tmp_path / "expected.npy", expected)
    libraries = sorted(tmp_path.rglob("*.so"))
    program = (
        "import sys, numpy, tvm\nfrom tvm import relax\n"
        "vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())\n"
        "x, expected = (numpy.ones(eval(sys.argv[3]), 'float32'), numpy.load(sys.argv[2]))\n"
        "result = vm['main'](tvm.runtime.tensor(x))\n"
        "result = result if hasattr(result, 'numpy') else result[0]\n"
        "numpy.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)\n"
        "assert 'libdnnl' not in open('/proc/self/maps').read()\n"
    )
    arguments = [str(libraries[-1]), str(tmp_path / "expected.npy"), str(list(x.shape))]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


_FAILING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static int left = -1;
static const char *of = "";
void fail_after(int calls, const char *path) { left = calls, of = path; }
void *aligned_alloc(size_t alignment, size_t size) {
    void *memory = NULL;
    Dl_info caller;
    if (dladdr(__builtin_return_address(0), &caller) && !strcmp(caller.dli_fname, of) && left-- == 0) return NULL;
    return posix_memalign(&memory, alignment < 64 ? 64 : alignment, size) ? NULL : memory;
}
"""
"""The kernel's allocation of that number fails."""


@pytest.mark.exhaustive
def test_a_kernel_whose_memory_runs_out_runs_loops_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "failing.c").write_text(_FAILING)
    failing = tmp_path / "failing.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "failing.c"), "-o", str(failing)], check=True)
    module = by_library(prepared(FORMS["residual"], tmp_path), CPU)
    x = np.ones(_input_shape(FORMS["residual"]), np.float32)
    (expected,) = module_outputs(module, [x], tmp_path)
    np.save(tmp_path / "expected.npy", expected)
    (library,) = (path for path in tmp_path.glob("*.so") if path != failing)
    program = (
        "import ctypes, shutil, sys, numpy, tvm\nfrom tvm import relax\n"
        "from tunefarm_tuning.artifact.onednn_library import load_onednn\nassert load_onednn()\n"
        "x, expected = (numpy.ones(eval(sys.argv[3]), 'float32'), numpy.load(sys.argv[2]))\n"
        "for calls in range(6):\n"
        "    path = shutil.copy(sys.argv[1], f'{sys.argv[1]}.{calls}.so')\n"
        "    vm = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())\n"
        "    name = path.encode()\n"
        "    ctypes.CDLL(None).fail_after(calls, name)\n"
        "    for again in range(2):\n"
        "        result = vm['main'](tvm.runtime.tensor(x))\n"
        "        result = result if hasattr(result, 'numpy') else result[0]\n"
        "        numpy.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)\n"
    )
    arguments = [str(library), str(tmp_path / "expected.npy"), str(list(x.shape))]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "LD_PRELOAD": str(failing)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
