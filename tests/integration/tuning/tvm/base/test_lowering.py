"""Kernels for all sizes of their first dimension, whose tiles do not divide the others: their tails are loops of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from onnx_reference import unaligned_tensor
from scheduled_networks import AVX2, AVX512, Net, conv, gelu

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.frontend.importer import import_open
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import prepare
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.open_shape import OpenDimension

NETS: dict[str, Net] = {
    "conv": conv((4, 24, 10, 20), 40, 3, 2),
    "conv-rows": conv((4, 32, 13, 20), 64, 3),
    "dense": gelu,
}
KERNEL = {"conv": "fused_conv2d_add_relu", "conv-rows": "fused_conv2d_add_relu", "dense": "fused_matmul"}
ROWS = 3


def open_kernel(name: str, target: Target) -> tvm.tirx.PrimFunc:
    """Return the network's product for all sizes of its first dimension."""
    g = GraphBuilder(1)
    g.output(NETS[name](g), None)
    model = onnx.shape_inference.infer_shapes(g.model())
    (value,) = model.graph.input
    _, *rest = (dim.dim_value for dim in value.type.tensor_type.shape.dim)
    value.type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    network = bind_model(model, Binding(shapes={value.name: (4, *rest)}))
    opened = import_open(network, [(OpenDimension(name="n"), *rest)])
    prepared, warnings = prepare(opened.module, target)
    assert not warnings
    (kernel,) = (kernel for kernel in primfunc_workloads(prepared) if kernel.name.startswith(KERNEL[name]))
    return prepared[kernel.name]


def outputs(func: tvm.tirx.PrimFunc, path: Path, target: Target, *, default_schedules: bool) -> NDArray[Any]:
    """Return what a kernel computes of `ROWS` rows."""
    build_kernel(PackedKernel(func=func), target, path, default_schedules=default_schedules)
    rng = np.random.default_rng(0)
    shapes = [
        [int(size) if isinstance(size, tvm.tirx.IntImm) else ROWS for size in param.shape]
        for param in func.params
    ]
    tensors = [unaligned_tensor(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
    tvm.runtime.load_module(str(path))["main"](*tensors)
    result: NDArray[Any] = tensors[-1].numpy()
    return result


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", NETS)
def test_tails_of_kernels_for_all_sizes_compile(name: str, target: Target, tmp_path: Path) -> None:
    func = open_kernel(name, target)
    scheduled = default_schedule(func, target).with_attr("global_symbol", "main")
    assert KernelObjects(tmp_path).object_of(scheduled, target).stat().st_size
    if target is AVX2 and "avx2" in cpu_flags():
        ours = outputs(func, tmp_path / "ours.so", target, default_schedules=True)
        theirs = outputs(func, tmp_path / "plain.so", target, default_schedules=False)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
