"""Find the kernels that a prepared module runs, how often, and which of them can be tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock

from tunefarm_tuning.reference.comparison import BFLOAT16, TIES
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, static_shape
from tunefarm_tuning.tvm.base.reshapes import is_reshape
from tunefarm_tuning.tvm.base.serialization import module_to_text
from tunefarm_tuning.tvm.base.tir import ATTENTION, CPU_ONLY, POINTWISE_DEPTHWISE, nodes_of, walk
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_calls, weights_of
from tunefarm_tuning.tvm.tasks.workload_key import workload_key
from tunefarm_tuning.workload.task import TensorSpec, TuningTask, Workload

_CALLS_OUT = {
    f"tirx.{name}"
    for name in (
        *("call_extern", "call_pure_extern"),
        *("tvm_call_packed", "tvm_call_cpacked", "tvm_call_packed_lowered", "tvm_call_cpacked_lowered"),
    )
}
_ROUNDS = frozenset({"round", "nearbyint", "floor", "ceil", "trunc"})
"""Names of rounding operators without their prefix: TVM 0.27 has ``prim.ceil`` and ``tirx.floor``."""
_INDEX_FIELDS = frozenset({"indices", "reads", "writes", "iter_values", "predicate", "iter_vars"})
"""Fields of TIR with the place at which a value is read or written, not the value."""


class NotTunable(StrEnum):
    """Why a kernel is no tuning task. It gets its default schedule, which counts neither as hit nor as miss."""

    SYMBOLIC_SHAPE = "symbolic-shape"
    EXTERN_CALL = "extern-call"  # calls a library, and has no loops
    RESHAPE = "reshape"  # a view of its input: nothing runs
    NO_LOOPS = "no-loops"  # a single element
    BYTE_DOTS = "byte-dots"  # of extractions by earlier releases, whose spaces had no smmla
    RECURRENT = "recurrent"  # computed step after step: its loops are written by hand
    ATTENTION = "attention"  # likewise
    POINTWISE_DEPTHWISE = "pointwise-depthwise"  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A PrimFunc that the module's main function calls.

    Attributes:
        workload_key: Kernels of a module may share one.
        module: The normalised module, which tuning schedules: the PrimFunc alone, as ``main``, without graph attributes.
        weight: Calls per inference; the calls in both branches of an ``If`` count.
        not_tunable: Why it is no tuning task; None for a tuning task.
    """

    name: str
    workload_key: str
    module: tvm.IRModule
    weight: int
    not_tunable: NotTunable | None


def primfunc_workloads(mod: tvm.IRModule, weights: Sequence[int] = ()) -> list[Kernel]:
    """Return every kernel of a prepared module, in order of first use.

    Args:
        mod: The module.
        weights: How often each of its entries is run, relative to the others; equally often by default.
    """
    calls: dict[str, int] = {}
    entries = entry_names(mod)
    for entry, weight in zip(entries, weights or [1] * len(entries), strict=True):
        for name, _ in kernel_calls(mod[entry].body):
            calls[name] = calls.get(name, 0) + weight
    return [as_kernel(name, mod[name], weight) for name, weight in calls.items()]


def tasks_of(every: Sequence[Kernel], target: Target) -> list[TuningTask]:
    """Return the tuning tasks among the kernels of a prepared module; equal workloads are one task."""
    kernels = [kernel for kernel in every if kernel.not_tunable is None]
    calls: dict[str, int] = {}
    for kernel in kernels:
        calls[kernel.workload_key] = calls.get(kernel.workload_key, 0) + kernel.weight
    first = {kernel.workload_key: kernel for kernel in reversed(kernels)}
    return [
        TuningTask(workload=as_workload(first[key]), target=target, weight=weight)
        for key, weight in calls.items()
    ]


def as_workload(kernel: Kernel) -> Workload:
    """Return the workload of a kernel."""
    return Workload(
        key=kernel.workload_key,
        name=kernel.name,
        flops=kernel_flops(kernel.module),
        args=kernel_args(kernel.module),
        ir=module_to_text(kernel.module),
    )


def kernel_args(module: tvm.IRModule) -> tuple[TensorSpec, ...]:
    """Return the arguments of a normalised module of static shapes."""
    weights = weights_of(module["main"])
    return tuple(
        TensorSpec(
            name=f"arg{i}",
            shape=tuple(int(d) for d in param.ty.shape),
            dtype=str(param.ty.dtype.dtype),
            constant=i in weights,
        )
        for i, param in enumerate(module["main"].params)
    )


def rounds_values(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel rounds floats that it computes with to integers, by a function or by a cast.

    Indices do not count: every resize rounds the positions of the pixels that it reads.
    """
    if not nodes_of(func.body, tirx.Cast) and not any(map(_rounds, nodes_of(func.body, tvm.ir.Call))):
        return False  # as most kernels; `walk` takes many times as long
    return any(
        _rounds(node) or (isinstance(node, tirx.Cast) and _is_float(node.value) and not _is_float(node))
        for node in walk(func.body, leaving_out=_INDEX_FIELDS)
    )


def _rounds(node: Any) -> bool:
    """Return whether a node is a call of a function that rounds."""
    return operator_name(node).rpartition(".")[2] in _ROUNDS


def rounding_of(func: tirx.PrimFunc) -> str:
    """Return a kernel's rounding for `comparison.compare_arrays`; empty if it does not round."""
    if nodes_of(func.body, tirx.Cast) and any(
        isinstance(node, tirx.Cast) and str(node.ty.dtype) == BFLOAT16
        for node in walk(func.body, leaving_out=_INDEX_FIELDS)
    ):
        return BFLOAT16
    if any(_adds_up_float16(block) for block in nodes_of(func.body, SBlock)):
        return BFLOAT16  # a sum of a thousand products in float16 is as far off as a product of bfloat16
    return TIES if rounds_values(func) else ""


def _adds_up_float16(block: Any) -> bool:
    """Return whether a block adds up in float16."""
    return (
        block.init is not None
        and isinstance(block.body, tirx.BufferStore)
        and isinstance(block.body.value, tirx.Add)
        and str(block.body.value.ty.dtype) == "float16"
    )


def kernel_flops(module: tvm.IRModule) -> float:
    """Return the floating-point operations of one call; 0 for pure data movement."""
    return float(tvm.s_tir.analysis.estimate_tir_flops(module))


def as_kernel(name: str, func: tirx.PrimFunc, weight: int) -> Kernel:
    """Return a PrimFunc as a kernel that a module calls `weight` times per inference."""
    bare = func.without_attr("op_pattern").with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return Kernel(
        name=name,
        workload_key=workload_key(bare),
        module=tvm.IRModule({"main": bare}),
        weight=weight,
        not_tunable=_why_not_tunable(func),
    )


def _why_not_tunable(func: tirx.PrimFunc) -> NotTunable | None:
    if any(static_shape(param) is None for param in func.params):
        return NotTunable.SYMBOLIC_SHAPE
    if is_reshape(func):
        return NotTunable.RESHAPE
    if CPU_ONLY in func.attrs:
        return NotTunable.RECURRENT
    if ATTENTION in func.attrs:
        return NotTunable.ATTENTION
    if POINTWISE_DEPTHWISE in func.attrs:
        return NotTunable.POINTWISE_DEPTHWISE
    if any(operator_name(call) in _CALLS_OUT for call in nodes_of(func.body, tvm.ir.Call)):
        return NotTunable.EXTERN_CALL
    has_loop = any(not _is_one(loop.extent) for loop in nodes_of(func.body, tirx.For))
    return None if has_loop else NotTunable.NO_LOOPS


def _is_float(value: Any) -> bool:
    return "float" in str(value.ty.dtype)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
