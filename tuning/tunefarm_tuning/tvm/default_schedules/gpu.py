"""Default schedules of a GPU: the first DLight rule that fits, else threads over the outer parallel loops.

A GPU only runs kernels whose loops are bound to threads, so every kernel needs a schedule. DLight ships with TVM. Its rules
are made for language models; on kernels that they do not expect they raise an error or leave a stage without threads. They also
ask for the shared memory that a large GPU has, whatever the architecture (72 KiB for a product of float16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.launches import launches_of
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.tensor_intrinsics import import_intrinsics, modules_by_file
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, schedule_of, walk
from tunefarm_tuning.tvm.default_schedules.stage import blocks_of, finished, inline_stages

Fits = Callable[[tirx.PrimFunc], bool]

_THREADS = 256
"""Threads of a block in `bind_threads`: a multiple of a warp that leaves enough registers on every GPU."""
_CALLS = {
    f"tirx.{name}" for name in ("tvm_call_packed", "tvm_call_cpacked", "call_extern", "call_pure_extern")
}


def with_gpu_schedules(
    module: tvm.IRModule,
    target: Target,
    machine: tvm.target.Target,
    *,
    by_dlight: bool = True,
    fits: Fits | None = None,
) -> tvm.IRModule:
    """Return the module with its unscheduled PrimFuncs scheduled.

    Args:
        module: A prepared network, or one kernel.
        target: A GPU.
        machine: TVM's object for it.
        by_dlight: Try DLight's rules. Kernels without are the reference where a kernel is said to be wrong.
        fits: Accepts a scheduled kernel; if it returns False, the next rule is tried. None: every kernel fits.
    """
    import_intrinsics(target)
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if not isinstance(func, tirx.PrimFunc) or IS_SCHEDULED in func.attrs:
            continue
        if runs_on_the_host(func) or is_bound(func):  # TVM's own sorts are bound already
            continue
        if not by_dlight:
            result.update_func(name, finished(bind_threads(func.with_attr("global_symbol", "main")), func))
            continue
        with machine:
            result.update_func(name, gpu_schedule(func, machine, fits=fits))
    return result


def gpu_schedule(
    func: tirx.PrimFunc, machine: tvm.target.Target, *, fits: Fits | None = None
) -> tirx.PrimFunc:
    """Return a kernel scheduled for a GPU by the first rule that fits it, and that the GPU can launch. Deterministic."""
    bare = func.with_attr("global_symbol", "main")
    for scheduled in _by_dlight(bare, machine):
        if is_bound(scheduled) and _can_launch(scheduled, machine) and (fits is None or fits(scheduled)):
            return finished(scheduled, func)
    return finished(bind_threads(bare), func)


def _can_launch(func: tirx.PrimFunc, machine: tvm.target.Target) -> bool:
    limits = limits_of(str(machine.attrs.get("arch", "")))
    try:
        return not any(launch.obstacle(limits) for launch in launches_of(func, machine))
    except Exception as error:  # noqa: BLE001  (TVM has many error types; what cannot be lowered cannot be built)
        raise_if_out_of_memory(error)
        return False


def _by_dlight(func: tirx.PrimFunc, machine: tvm.target.Target) -> Iterator[tirx.PrimFunc]:
    from tvm.s_tir import dlight

    gpu = dlight.gpu
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()):
        try:
            with modules_by_file():  # DLight imports the intrinsics of tensor cores if it uses them
                space = rule.apply(func, machine, False)
        except Exception as error:  # noqa: BLE001  (a rule asserts what it expects; the next one may fit)
            raise_if_out_of_memory(error)
            continue
        if space is not None:
            yield (space if isinstance(space, Schedule) else space[0]).mod["main"]


def is_bound(func: tirx.PrimFunc) -> bool:
    """Return whether every writing loop nest of a kernel is bound to threads."""
    return all(_binds_threads(nest) for nest in _loop_nests(func.body) if _writes(nest))


def bind_threads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Spread the outer parallel loops of each loop nest over threads; a nest without any runs on one thread."""
    sch = schedule_of(func)
    inlined = sch.copy()
    try:
        inline_stages(inlined)
        sch = inlined
    except Exception as error:  # noqa: BLE001  (TVM has many error types; the kernel is the same without inlining)
        raise_if_out_of_memory(error)
    for block in blocks_of(sch):
        loops = list(sch.get_loops(block))
        if not _binds_threads(sch.get(loops[0] if loops else block)):
            _bind(sch, block)
    return sch.mod["main"]


def _bind(sch: Any, block: Any) -> None:
    parallel = _outer_parallel_loops(sch, block)
    if parallel:
        try:
            _spread(sch.copy(), parallel)  # on a copy: a failing step would leave the effects of earlier ones
        except Exception as error:  # noqa: BLE001  (shared loops, indices that are no sums, loops of no iterations, ...)
            raise_if_out_of_memory(error)
            parallel = []
    if parallel:
        _spread(sch, parallel)
        return
    loops = list(sch.get_loops(block))
    sch.bind(sch.add_unit_loop(loops[0] if loops else block), "threadIdx.x")


def _spread(sch: Any, loops: list[Any]) -> None:
    outer, inner = sch.split(sch.fuse(*loops), factors=[None, _THREADS])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")


def _outer_parallel_loops(sch: Any, block: Any) -> list[Any]:
    """Return the outermost loops of a block that are parallel, up to the first that is not."""
    loops, indices = list(sch.get_loops(block)), list(sch.get(block).iter_vars)
    if len(loops) != len(indices):
        return []
    parallel = []
    for loop, index in zip(loops, indices, strict=True):
        if index.iter_type != tirx.IterVar.DataPar:
            break
        parallel.append(loop)
    return parallel


def _loop_nests(body: Any) -> Iterator[Any]:
    """Yield the loop nests of a kernel in order; each becomes a launch."""
    if isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root":
        yield from _loop_nests(body.block.body)
    elif isinstance(body, tirx.SeqStmt):
        for part in body.seq:
            yield from _loop_nests(part)
    else:
        yield body


def _binds_threads(nest: Any) -> bool:
    return any(
        (isinstance(node, tirx.For) and node.kind == tirx.ForKind.THREAD_BINDING)
        or (isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent")
        for node in walk(nest)
    )


def _writes(nest: Any) -> bool:
    """Return whether a statement writes anything; between loop nests TVM's kernels also bind values and allocate."""
    return any(isinstance(node, tirx.BufferStore) for node in walk(nest))


def runs_on_the_host(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel calls a library or is marked for the host."""
    if func.attrs and func.attrs.get("tirx.is_host_func"):
        return True
    return any(isinstance(node, tvm.ir.Op) and node.name in _CALLS for node in walk(func.body))
