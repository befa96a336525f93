"""Schedule untuned kernels for a CPU, by rules, in milliseconds.

TVM ships no default schedules for CPUs, and its unscheduled loops are up to two hundred times as slow. A kernel that no rule
fits keeps its unscheduled loops. The tables below list the rules in the order in which they are tried; before the rules of single
stages come tiled reductions, which take other stages into their loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import Schedule

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.reshapes import is_reshape
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.default_schedules.cpu.dot_instructions import insert_dot_products
from tunefarm_tuning.tvm.default_schedules.cpu.dot_product import schedule_dot_product
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    is_transposed_apart,
    schedule_elementwise,
)
from tunefarm_tuning.tvm.default_schedules.cpu.groups import split_channel_groups
from tunefarm_tuning.tvm.default_schedules.cpu.joined_vectors import insert_joined_vectors
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import (
    compares_loops,
    mark_tails,
    without_tail_hints,
)
from tunefarm_tuning.tvm.default_schedules.cpu.overlapping_tiles import TilesDoNotOverlap, shift_last_tiles
from tunefarm_tuning.tvm.default_schedules.cpu.ragged_reductions import vectorize_ragged_reductions
from tunefarm_tuning.tvm.default_schedules.cpu.row_reductions import (
    schedule_row_chain,
    schedule_row_reduction,
)
from tunefarm_tuning.tvm.default_schedules.cpu.tiled_reductions import schedule_tiled_reduction
from tunefarm_tuning.tvm.default_schedules.cpu.transposes import write_transpose
from tunefarm_tuning.tvm.default_schedules.cpu.weight_prefetch import insert_prefetches
from tunefarm_tuning.tvm.default_schedules.stage import (
    Machine,
    blocks_of,
    finished,
    inlined_schedule,
    stage_of,
)
from tunefarm_tuning.tvm.kernels.weight_packing import (
    PackedKernel,
    Packing,
    packable_weights,
    split_off_packing,
    with_given_orders,
    with_weights_as_given,
)

KernelRule = Callable[[Any, list[Any], Machine], bool]
"""Takes a schedule, its blocks in program order and the CPU; returns whether the kernel is done, even with unchanged loops."""

StageRule = Callable[[Any, Any, Machine], bool]
"""Takes a schedule, one block and the CPU; returns whether the block is done."""

BodyRewrite = Callable[[tvm.tirx.PrimFunc, Machine], tvm.tirx.PrimFunc]
"""Takes a kernel after the rules; returns the same object if there is nothing to change."""


def schedule_stages(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Schedule each stage by the first rule that fits it; return whether one fitted any.

    Tiled reductions come first, because they take paddings before them and steps behind them into their loops.
    """
    tiled = [schedule_tiled_reduction(sch, block, machine) for block in blocks]
    return any(tiled + [_schedule_stage(sch, block, machine) for block in blocks])


def _schedule_stage(sch: Any, block: Any, machine: Machine) -> bool:
    # A block without a stage is scheduled, or moved into another stage's loops, or has no rule.
    if stage_of(sch, block) is None:
        return False
    return any(rule(sch, block, machine) for rule in STAGE_RULES)


KERNEL_RULES: tuple[KernelRule, ...] = (
    schedule_dot_product,
    split_channel_groups,  # prepares the blocks, and leaves the schedule to later rules
    schedule_row_chain,
    schedule_stages,
)
STAGE_RULES: tuple[StageRule, ...] = (schedule_row_reduction, schedule_elementwise)
BODY_REWRITES: tuple[BodyRewrite, ...] = (
    shift_last_tiles,
    insert_prefetches,
    insert_joined_vectors,
    insert_dot_products,
    vectorize_ragged_reductions,
)


_MAX_SCHEDULED = 2048
_scheduled: dict[tuple[Any, Target], tvm.tirx.PrimFunc | str] = {}
"""Kernels as rules scheduled them, or why none did."""
_NAMING = ("global_symbol", "op_pattern")
"""Attributes that say what a kernel is in its network; no rule reads them."""


Keeper = Callable[[tvm.tirx.PrimFunc, Target, Callable[[], tvm.tirx.PrimFunc]], tvm.tirx.PrimFunc]
"""Takes an unscheduled kernel, the target and what schedules it; returns the kernel scheduled, as an earlier process did it if it knows."""

_keeper: Keeper = lambda _func, _target, schedule: schedule()  # noqa: E731


def use_keeper(keeper: Keeper) -> None:
    """Have this process ask for kernels that others have scheduled by rule."""
    global _keeper
    _keeper = keeper


class NoDefaultSchedule(Exception):  # noqa: N818  (an outcome)
    """No rule fits a kernel."""


def with_default_schedules(
    module: tvm.IRModule, target: Target, *, fits: Callable[[tvm.tirx.PrimFunc], bool] | None = None
) -> tvm.IRModule:
    """Return the module with its unscheduled PrimFuncs scheduled for a CPU, if a rule fits them and `fits`, if any, accepts the result."""
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if not isinstance(func, tvm.tirx.PrimFunc) or IS_SCHEDULED in func.attrs:
            continue
        if is_reshape(func):
            continue  # its unscheduled loops show TVM that nothing needs to be run
        with suppress(NoDefaultSchedule):
            scheduled = default_schedule(func, target)
            if fits is None or fits(scheduled):
                result.update_func(name, scheduled)
    return result


def default_schedule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.tirx.PrimFunc:
    """Return a kernel scheduled for a CPU by rule. Deterministic.

    It takes the arguments of the workload, weights in the order in which they are given.

    Raises:
        NoDefaultSchedule: If no rule fits.
    """
    return _by_rule(with_weights_as_given(func), target)


def packed_default_schedule(func: tvm.tirx.PrimFunc, target: Target) -> PackedKernel:
    """Return a kernel scheduled for a CPU by rule that takes large weights pre-packed.

    Raises:
        NoDefaultSchedule: If no rule fits.
    """
    scheduled = tvm.IRModule({"main": _by_rule(func, target)})
    try:
        kernel = split_off_packing(scheduled)
    except Exception as error:
        raise_if_out_of_memory(error)
        raise NoDefaultSchedule(clean(str(error), 300)) from error
    return PackedKernel(func=kernel.func.with_attr(IS_SCHEDULED, True), packings=kernel.packings)


def packed_default_schedules(
    module: tvm.IRModule,
    target: Target,
    *,
    without: Collection[str] = (),
    orders: Mapping[str, Mapping[int, Packing]] | None = None,
) -> dict[str, PackedKernel]:
    """Return the kernels of a network whose default schedule takes large weights pre-packed, by name.

    Args:
        module: A prepared network.
        target: The target; only CPUs take weights packed.
        without: Names of kernels to leave out.
        orders: The orders in which weights lie for other kernels: `given_orders`.
    """
    kernels: dict[str, PackedKernel] = {}
    for variable, func in module.functions.items() if pipeline_name(target) == "cpu" else ():
        name = str(variable.name_hint)
        if (
            name not in without
            and isinstance(func, tvm.tirx.PrimFunc)
            and IS_SCHEDULED not in func.attrs
            and packable_weights(func)
        ):
            with suppress(NoDefaultSchedule):
                kernel = packed_default_schedule(
                    with_given_orders(func, (orders or {}).get(name, {})), target
                )
                if kernel.packings:
                    kernels[name] = kernel
    return kernels


def _by_rule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.tirx.PrimFunc:
    """Return a kernel scheduled by rule; of equal ones, once: the variants of a network share most kernels.

    Raises:
        NoDefaultSchedule: If no rule fits.
    """
    unnamed = func
    for name in _NAMING:
        unnamed = unnamed.without_attr(name) if name in unnamed.attrs else unnamed
    key = (tvm_ffi.StructuralKey(unnamed), target)
    if key not in _scheduled:
        try:
            _scheduled[key] = _keeper(unnamed, target, lambda: _schedule_by_rule(unnamed, target))
        except NoDefaultSchedule as error:
            _scheduled[key] = str(error)
        while len(_scheduled) > _MAX_SCHEDULED:
            _scheduled.pop(next(iter(_scheduled)))
    scheduled = _scheduled[key]
    if isinstance(scheduled, str):
        raise NoDefaultSchedule(scheduled)
    return scheduled.with_attr({name: func.attrs[name] for name in _NAMING if name in func.attrs})


def _schedule_by_rule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.tirx.PrimFunc:
    unscheduled = func.with_attr("global_symbol", "main")
    try:
        machine = Machine.of(target)
        try:
            by_rules, scheduled = _by_all_rules(unscheduled, machine)
        except TilesDoNotOverlap:
            by_rules, scheduled = _by_all_rules(unscheduled, replace(machine, overlaps=False))
    except Exception as error:
        # TVM sometimes refuses a step that looked legal, with errors of many types. Then the loops stay unscheduled.
        raise_if_out_of_memory(error)
        raise NoDefaultSchedule(clean(str(error), 300)) from error
    if by_rules is None and scheduled.same_as(unscheduled):
        raise NoDefaultSchedule("no rule fits")
    if compares_loops(scheduled):
        return finished(without_tail_hints(scheduled), func)
    return finished(mark_tails(scheduled), func)


def _by_all_rules(
    unscheduled: tvm.tirx.PrimFunc, machine: Machine
) -> tuple[tvm.tirx.PrimFunc | None, tvm.tirx.PrimFunc]:
    """Return a kernel as the rules of kernels scheduled it, None if none fits, and as the rewrites of bodies left it."""
    sch = inlined_schedule(unscheduled, is_transposed_apart)
    by_rules = write_transpose(unscheduled, machine, sch) or _apply_kernel_rules(sch, machine)
    scheduled = by_rules or unscheduled
    for rewrite in BODY_REWRITES:
        scheduled = rewrite(scheduled, machine)
    return by_rules, scheduled


def _apply_kernel_rules(sch: Schedule, machine: Machine) -> tvm.tirx.PrimFunc | None:
    blocks = blocks_of(sch)
    if any(rule(sch, blocks, machine) for rule in KERNEL_RULES):
        return sch.mod["main"]
    return None
