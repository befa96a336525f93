"""Default schedules of a GPU: DLight's, and threads bound plainly where DLight has none that builds.

A GPU runs no kernel whose loops are bound to no threads, so "as it stands" is no way out here: every kernel gets a
schedule. DLight's rules ship with TVM; they are made for language models, and stop with an error, or leave a stage
unbound, on kernels that no rule of theirs expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.tensor_intrinsics import import_intrinsics
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, walk
from tunefarm_tuning.tvm.default_schedules.inline import blocks_of, inline_stages

Fits = Callable[[tirx.PrimFunc], bool]

_THREADS = 256
"""Of a block where threads are bound plainly: a multiple of a warp that every GPU has registers for."""
_CALLS = {
    f"tirx.{name}" for name in ("tvm_call_packed", "tvm_call_cpacked", "call_extern", "call_pure_extern")
}


def with_gpu_schedules(
    module: tvm.IRModule,
    target: Target,
    machine: tvm.target.Target,
    *,
    plain: bool = False,
    fits: Fits | None = None,
) -> tvm.IRModule:
    """Return the module with every PrimFunc that has no schedule scheduled.

    Args:
        module: A prepared network, or one kernel.
        target: A GPU.
        machine: TVM's object for it.
        plain: Use none of DLight's: what its kernels are held against where somebody says they are wrong.
        fits: Asked of each scheduled kernel; where it says no, the next rule is tried. Left out, no kernel is built to see.
    """
    import_intrinsics(target)  # DLight imports those for tensor cores itself where it takes them: seconds
    made = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if not isinstance(func, tirx.PrimFunc) or _is_done(func):
            continue
        if plain:
            made.update_func(name, _as_given(bind_threads(func.with_attr("global_symbol", "main")), func))
            continue
        with machine:
            made.update_func(name, gpu_schedule(func, machine, fits=fits))
    return made


def gpu_schedule(
    func: tirx.PrimFunc, machine: tvm.target.Target, *, fits: Fits | None = None
) -> tirx.PrimFunc:
    """Return a kernel scheduled for a GPU by the first rule that fits it. Deterministic."""
    bare = func.with_attr("global_symbol", "main")
    for scheduled in _by_dlight(bare, machine):
        if is_bound(scheduled) and (fits is None or fits(scheduled)):
            return _as_given(scheduled, func)
    return _as_given(bind_threads(bare), func)


def _by_dlight(func: tirx.PrimFunc, machine: tvm.target.Target) -> Iterator[tirx.PrimFunc]:
    from tvm.s_tir import dlight

    gpu = dlight.gpu
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()):
        try:
            space = rule.apply(func, machine, False)
        except Exception as error:  # noqa: BLE001  (its rules assert what they expect: the next one may do)
            raise_if_out_of_memory(error)
            continue
        if space is not None:
            yield (space if isinstance(space, Schedule) else space[0]).mod["main"]


def _as_given(scheduled: tirx.PrimFunc, func: tirx.PrimFunc) -> tirx.PrimFunc:
    symbol = func.attrs.get("global_symbol")
    named = (
        scheduled.with_attr("global_symbol", symbol) if symbol else scheduled.without_attr("global_symbol")
    )
    return named.with_attr(IS_SCHEDULED, True)


def is_bound(func: tirx.PrimFunc) -> bool:
    """Return whether threads do all of a kernel's work: every nest of its loops is bound to some."""
    return all(_binds_threads(nest) for nest in _nests(func.body) if _writes(nest))


def bind_threads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel with each nest's outer parallel loops spread over threads; a nest without any runs on one thread."""
    sch = Schedule(tvm.IRModule({"main": func}), debug_mask=0, error_render_level="none")
    inlined = sch.copy()
    try:
        inline_stages(inlined)
        sch = inlined
    except Exception as error:  # noqa: BLE001  (TVM's many: it is the same kernel without)
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
            _spread(sch.copy(), parallel)  # a step that fails leaves the ones before it done
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
    """Return the loops at the head of a block's, each of which is one of its parallel indices."""
    loops, indices = list(sch.get_loops(block)), list(sch.get(block).iter_vars)
    if len(loops) != len(indices):
        return []
    found = []
    for loop, index in zip(loops, indices, strict=True):
        if index.iter_type != tirx.IterVar.DataPar:
            break
        found.append(loop)
    return found


def _nests(body: Any) -> Iterator[Any]:
    """Yield what follows one another at the head of a kernel, each of which becomes a launch of its own."""
    if isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root":
        yield from _nests(body.block.body)
    elif isinstance(body, tirx.SeqStmt):
        for part in body.seq:
            yield from _nests(part)
    else:
        yield body


def _binds_threads(nest: Any) -> bool:
    return any(
        (isinstance(node, tirx.For) and node.kind == tirx.ForKind.THREAD_BINDING)
        or (isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent")
        for node in walk(nest)
    )


def _writes(nest: Any) -> bool:
    """Whether there is work in a nest: some kernels of TVM's name numbers and allocate between theirs."""
    return any(isinstance(node, tirx.BufferStore) for node in walk(nest))


def _is_done(func: tirx.PrimFunc) -> bool:
    """Whether a kernel has a schedule: ours, a record's, or its own (TVM's sorts); or needs none."""
    return IS_SCHEDULED in func.attrs or _runs_on_the_host(func) or is_bound(func)


def _runs_on_the_host(func: tirx.PrimFunc) -> bool:
    """Whether a kernel calls a library, or is marked for the host."""
    if func.attrs and func.attrs.get("tirx.is_host_func"):
        return True
    return any(isinstance(node, tvm.ir.Op) and node.name in _CALLS for node in walk(func.body))
