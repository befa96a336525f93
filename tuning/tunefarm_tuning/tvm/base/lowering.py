"""Our steps in TVM's way from a kernel to code for a CPU, for every process that builds kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import pipeline as s_tir_pipeline

from tunefarm_tuning.tvm.base.bfloat16_instructions import link_code, round_by_instruction
from tunefarm_tuning.tvm.base.launches import LAUNCHED
from tunefarm_tuning.tvm.base.narrow_buffers import with_narrow_buffers
from tunefarm_tuning.tvm.base.other_cpus import for_other_cpus
from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.remainder_loops import without_remainder_loops
from tunefarm_tuning.tvm.base.stack_buffers import with_buffers_on_stack
from tunefarm_tuning.tvm.base.vector_loads import shuffle_loads
from tunefarm_tuning.tvm.base.vector_math.rules import with_functions

_PIPELINE = "s_tir"
_LAUNCHES = "tunefarm.launches_kernels"
_ALIGNMENT = "storage_alignment"
_PARTITION_LOOPS = s_tir.transform.LoopPartition
_BINARY = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max),
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE),
)


def register() -> None:
    """Take these steps for every kernel that this process builds from now on."""
    tirx.register_tir_pipeline(_PIPELINE, _pipeline)
    # TVM's pipeline lists its steps within a function, which asks this module for them when it runs.
    s_tir.transform.LoopPartition = _partition_loops


def _pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Return TVM's pipeline with our steps around its last one for host code."""
    lower, finalize_host, finalize_device = s_tir_pipeline.default_s_tir_pipeline()

    def finalize() -> Any:
        return tvm.transform.Sequential([_PASS, finalize_host(), _CPU])

    return tvm.transform.Sequential([_NARROW, lower, _MARK]), finalize, finalize_device


def _with_narrow_buffers(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    return _with_each(module, with_narrow_buffers)


def _with_each(module: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.IRModule:
    """Return a module with each of its kernels changed."""
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if isinstance(func, tirx.PrimFunc):
            result.update_func(name, change(func))
    return result


def _with_marks(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    """Mark the functions that launch kernels on a GPU: it cannot read this machine's stack."""
    if not any(_has(func, LAUNCHED) for func in module.functions.values()):
        return module
    return _with_each(module, lambda func: func if _has(func, LAUNCHED) else func.with_attr(_LAUNCHES, True))


def _has(func: Any, attribute: str) -> bool:
    return bool(func.attrs) and attribute in func.attrs


def _partition_loops() -> Any:
    """Return TVM's step that makes loops of their own of tails, and mends what it leaves in kernels of open sizes.

    TVM 0.27 replaces the variable of a loop of one iteration by a 0 of 32 bits. Kernels of open sizes count in 64, and the next step that
    looks at a sum of the two refuses it.
    """
    return tvm.transform.Sequential([_PARTITION_LOOPS(), _WIDEN])


def _with_widened_constants(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    return _with_each(module, _widened)


def _widened(func: tirx.PrimFunc) -> tirx.PrimFunc:
    if all(static_shape(param) is not None for param in func.params):
        return func
    mended = [(operation, _widen_constant) for operation in _BINARY]
    return func.with_body(tvm_ffi.structural_map(func.body, mended))


def _widen_constant(node: Any) -> Any:
    """Return an operation of two integers, of which a constant is as wide as the other."""
    types = [str(operand.expr_ty().dtype) for operand in (node.a, node.b)]
    if types[0] == types[1]:
        return node
    a, b = (
        tirx.IntImm("int64", operand.value) if isinstance(operand, tirx.IntImm) else operand
        for operand in (node.a, node.b)
    )
    return type(node)(a, b)


def _on_all(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    return _with_each(module, _finished)


def _finished(func: tirx.PrimFunc) -> tirx.PrimFunc:
    placed = func if _has(func, _LAUNCHES) else with_buffers_on_stack(func)
    finished = without_remainder_loops(shuffle_loads(placed.without_attr(_LAUNCHES)))
    return link_code(round_by_instruction(with_functions(finished)))


def _on_lowered(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    return _with_each(module, lambda func: for_other_cpus(_at_any_element(func)))


def _at_any_element(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel whose arguments begin at any multiple of an element's size, where TVM would have them at one of 64 bytes.

    A caller's array lies where its library put it, numpy's at an odd multiple of 16 bytes. A vector that is loaded without a promise
    of its alignment takes no longer if it is aligned all the same.
    """

    def relaxed(node: Any) -> Any:
        if node.attr_key != _ALIGNMENT:
            return node
        element = tvm.DataType(str(node.node.dtype)).bits // 8 or 1
        return tirx.AttrStmt(node.node, _ALIGNMENT, tirx.IntImm("int32", element), node.body)

    body = tvm_ffi.structural_map(func.body, [(tirx.AttrStmt, relaxed)])
    return func if body.same_as(func.body) else func.with_body(body)


_NARROW = tvm.transform.module_pass(_with_narrow_buffers, opt_level=0, name="NarrowBuffers")
_WIDEN = tvm.transform.module_pass(_with_widened_constants, opt_level=0, name="WidenConstants")
_MARK = tvm.transform.module_pass(_with_marks, opt_level=0, name="MarkLaunches")
_PASS = tvm.transform.module_pass(_on_all, opt_level=0, name="FinishKernels")
_CPU = tvm.transform.module_pass(_on_lowered, opt_level=0, name="ForOtherCpus")
