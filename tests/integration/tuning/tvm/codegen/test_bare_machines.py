"""Kernels of networks for 32-bit Arm and RISC-V, of which there is no wheel of TVM, run under QEMU with x86's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from bare_kernels import TARGETS, run_bare
from onnx_models import encoder_block, mobile_block
from quantised_networks import conv
from scheduled_networks import run

from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.tvm.base.tir import nodes_of
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.tasks.extract import kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobile": mobile_block,
    "encoder": encoder_block,
    "quantised": lambda: conv([1, 16, 10, 10], 32, 3, np.uint8, pads=[1] * 4),
}


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("machine", ["arm", "riscv64"])
def test_default_schedules_compute_what_x86_computes(machine: str, name: str, tmp_path: Path) -> None:
    target = TARGETS[machine]
    path = tmp_path / "model.onnx"
    path.write_bytes(NETWORKS[name]().SerializeToString())
    workloads = primfunc_workloads(load_relax(path, Binding(), target).module)
    kernels = [kernel for kernel in workloads if kernel.not_tunable is None]
    assert any("conv" in kernel.name or "matmul" in kernel.name for kernel in kernels)
    for kernel in kernels:
        func = default_schedule(kernel.module["main"], target)
        given = random_inputs(kernel_args(kernel.module), seed=3, kind=InputKind.POSITIVE)
        *_, actual = run_bare(func, machine, given, tmp_path)
        *_, expected = run(kernel, tmp_path, detect_host_target(), default_schedules=False)
        apart = np.abs(actual.astype(np.float64) - expected)
        step = 1 if expected.dtype.kind in "iu" else 1e-4 * float(np.abs(expected).max())
        assert apart.max() <= step, kernel.name


@pytest.mark.parametrize("machine", ["arm", "riscv64"])
def test_a_network_with_its_weights_is_linked(machine: str, tmp_path: Path) -> None:
    """On machines of 32 bits, too, whose list of modules LLVM writes as a whole."""
    path, library = tmp_path / "model.onnx", tmp_path / "model.so"
    path.write_bytes(mobile_block().SerializeToString())
    network = load_relax(path, Binding(), TARGETS[machine])
    build_model(network.module, TARGETS[machine], library, default_schedules=False)
    data = library.read_bytes()
    weights = next(
        constant.value.numpy()
        for constant in nodes_of(network.module["main"].body, tvm.ir.GenericConst)
        if constant.value.numpy().size > 1
    )
    assert data.startswith(b"\x7fELF")
    assert weights.tobytes() in data
