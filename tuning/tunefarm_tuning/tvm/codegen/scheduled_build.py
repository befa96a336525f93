"""Default schedules in a build: each unscheduled kernel gets one, if the result builds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import tvm

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.gpu import with_gpu_schedules
from tunefarm_tuning.tvm.default_schedules.schedule import (
    NoDefaultSchedule,
    packed_default_schedule,
    packed_default_schedules,
    with_default_schedules,
)
from tunefarm_tuning.tvm.kernels.shared_orders import given_orders, with_shared_orders
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, packable_weights


def build_scheduled(
    module: tvm.IRModule,
    target: Target,
    build: Callable[[tvm.IRModule], None],
    objects: KernelObjects,
    *,
    default_schedules: bool,
) -> None:
    """Build a module with default schedules; if that fails, without those that do not build by themselves."""
    with tvm_target(target):
        try:
            build(with_schedules(module, target, objects, default_schedules=default_schedules))
            return
        except Exception as error:
            raise_if_out_of_memory(error)
            if not default_schedules or is_machines_fault(error):
                raise
        # a default schedule may fail to build: each is tried alone
        build(with_schedules(module, target, objects, default_schedules=True, careful=True))


def is_machines_fault(error: Exception) -> bool:
    """Return whether an error means that this machine can build no kernel at all."""
    return isinstance(error, TunefarmError) and error.code not in ("internal", "cuda-compile-failed")


def with_packed_defaults(
    module: tvm.IRModule, kernels: Mapping[str, PackedKernel], target: Target
) -> dict[str, PackedKernel]:
    """Return scheduled kernels by name, and the others whose default schedule takes large weights pre-packed.

    Kernels of several sets of shapes share the orders of their weights.
    """
    result = with_shared_orders(module, kernels)
    orders = given_orders(module, result)
    defaults = packed_default_schedules(module, target, without=result, orders=orders)
    result = with_shared_orders(module, {**result, **defaults})
    # a kernel that takes no weight packed by itself may read it as one of these defaults does
    orders = given_orders(module, result)
    others = {str(variable.name_hint) for variable in module.get_global_vars()} - orders.keys()
    defaults = packed_default_schedules(module, target, without=others, orders=orders)
    return with_shared_orders(module, {**result, **defaults})


def packed_default(
    kernel: PackedKernel, target: Target, objects: KernelObjects | None = None
) -> PackedKernel:
    """Return an unscheduled kernel with a default schedule that takes large weights pre-packed.

    It is returned unchanged if the target is no CPU, or no weight gets another order, or the result does not build, where `objects` are
    given to try that.
    """
    if (
        pipeline_name(target) != "cpu"
        or not packable_weights(kernel.func)
        or IS_SCHEDULED in kernel.func.attrs
    ):
        return kernel
    try:
        packed = packed_default_schedule(kernel.func, target)
    except NoDefaultSchedule:
        return kernel
    if not packed.packings or (objects is not None and not builds(packed.func, target, objects)):
        return kernel
    return packed


def with_schedules(
    module: tvm.IRModule,
    target: Target,
    objects: KernelObjects,
    *,
    default_schedules: bool,
    careful: bool = False,
) -> tvm.IRModule:
    """Return a module with its unscheduled kernels scheduled; if `careful`, as far as the results build by themselves.

    On a GPU all of them are: loops that are bound to no threads cannot be built.
    """
    fits = partial(builds, target=target, objects=objects) if careful else None
    if pipeline_name(target) != "cpu":
        return with_gpu_schedules(module, target, tvm_target(target), by_dlight=default_schedules, fits=fits)
    return with_default_schedules(module, target, fits=fits) if default_schedules else module


def builds(func: tvm.tirx.PrimFunc, target: Target, objects: KernelObjects) -> bool:
    """Return whether a scheduled kernel builds by itself."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        if target.kind == "llvm":
            objects.object_of(func, target)
            return True
        with tvm.transform.PassContext(config=SPLIT_TAILS), span("LLVM: a kernel on trial", SpanKind.LLVM):
            built = tvm.tirx.build(module, tvm_target(target))
        if target.kind == "cuda":  # the CUDA C may still be wrong
            with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
                export(built, Path(folder, "kernel.so"), Path(folder), target)
    except Exception as error:  # noqa: BLE001  (TVM has many error types)
        raise_if_out_of_memory(error)
        return False
    return True
