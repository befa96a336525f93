"""Kernels of networks for 64-bit Arm, and their assembly."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import tvm

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision


def load(
    model: onnx.ModelProto, folder: Path, target: Target, precision: Precision = Precision.AS_MODEL
) -> RelaxNetwork:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return load_relax(folder / "model.onnx", Binding(), target, precision)


def assemblies(
    model: onnx.ModelProto, folder: Path, target: Target, precision: Precision = Precision.AS_MODEL
) -> list[str]:
    """Return the assembly of each kernel that multiplies bytes, or bfloat16, under its default schedule."""
    loaded = load(model, folder, target, precision)
    texts = []
    for kernel in primfunc_workloads(loaded.module):
        if not re.search("byte_|of_bytes|bfloat16_", kernel.name):
            continue
        func = loaded.module[kernel.name]
        if "lstm" not in kernel.name:
            func = default_schedule(func, target)
        func = func.with_attr("global_symbol", "main")
        with tvm_target(target), tvm.transform.PassContext(config=SPLIT_TAILS):
            built = tvm.tirx.build(tvm.IRModule({"main": func}), target=tvm_target(target))
        texts.append(str(built.inspect_source("asm")))
    return texts


def left_in_floats(folder: Path, target: Target) -> list[str]:
    """Return the products of the network in a folder that are no products of bytes; what reads bytes may still multiply floats."""
    kernels = primfunc_workloads(load_relax(folder / "model.onnx", Binding(), target).module)
    products = [kernel.name for kernel in kernels if re.search("conv|matmul", kernel.name)]
    return [name for name in products if not re.search("byte_|of_bytes", name)]
