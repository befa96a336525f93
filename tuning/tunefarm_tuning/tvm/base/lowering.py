"""Our steps in TVM's way from a kernel to code for a CPU, for every process that builds kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import pipeline as s_tir_pipeline

from tunefarm_tuning.tvm.base.bfloat16_instructions import link_code
from tunefarm_tuning.tvm.base.stack_buffers import with_buffers_on_stack
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.base.vector_loads import shuffle_loads

_PIPELINE = "s_tir"
_LAUNCH = tvm.ir.Op.get("tirx.call_ffi_kernel")


def register() -> None:
    """Take these steps for every kernel that this process builds from now on."""
    tirx.register_tir_pipeline(_PIPELINE, _pipeline)


def _pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Return TVM's pipeline with our steps in front of its last one for host code."""
    lower, finalize_host, finalize_device = s_tir_pipeline.default_s_tir_pipeline()

    def finalize() -> Any:
        return tvm.transform.Sequential([_PASS, finalize_host()])

    return lower, finalize, finalize_device


def _on_all(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if isinstance(func, tirx.PrimFunc):
            placed = func if _launches(func) else with_buffers_on_stack(func)
            result.update_func(name, link_code(shuffle_loads(placed)))
    return result


def _launches(func: tirx.PrimFunc) -> bool:
    """Return whether a function launches kernels on a GPU, which cannot read this machine's stack."""
    return any(isinstance(call, tvm.ir.Call) and call.op.same_as(_LAUNCH) for call in walk(func.body))


_PASS = tvm.transform.module_pass(_on_all, opt_level=0, name="FinishKernels")
