"""The schedules of kernels that nobody has tuned: made by rule in milliseconds, so that a model is good at once.

TVM ships none for CPUs: its plain loops are up to two hundred times as slow. The rules look at how loops walk
tensors and know no operator by name. A kernel that they do not fit keeps its plain loops.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import Schedule

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import schedule_plain
from tunefarm_tuning.tvm.default_schedules.cpu.groups import split_groups
from tunefarm_tuning.tvm.default_schedules.cpu.int8_dot_product import schedule_dots, with_instructions
from tunefarm_tuning.tvm.default_schedules.cpu.ragged_reductions import reduce_in_lanes
from tunefarm_tuning.tvm.default_schedules.cpu.reduce import schedule_tiled
from tunefarm_tuning.tvm.default_schedules.cpu.row_reductions import schedule_lanes, schedule_rows
from tunefarm_tuning.tvm.default_schedules.cpu.tails import mark_rests
from tunefarm_tuning.tvm.default_schedules.inline import blocks_of, inline_stages
from tunefarm_tuning.tvm.default_schedules.stage import Machine, stage_of
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, as_it_lies, unpacked


class NoDefaultSchedule(Exception):  # noqa: N818  (an outcome)
    """No rule fits a kernel."""


def with_default_schedules(
    module: tvm.IRModule, target: Target, *, fits: Callable[[tvm.tirx.PrimFunc], bool] = lambda _: True
) -> tvm.IRModule:
    """Return the module with every PrimFunc that has no schedule scheduled by rule, as far as the rules go.

    Args:
        module: A prepared network, or one kernel.
        target: A CPU.
        fits: Asked of each scheduled kernel; where it says no, the plain loops stay.
    """
    made = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if not isinstance(func, tvm.tirx.PrimFunc) or IS_SCHEDULED in func.attrs:
            continue
        if relax.analysis.has_reshape_pattern(func):
            continue  # TVM knows by its plain loops that nothing has to be run
        with suppress(NoDefaultSchedule):
            scheduled = default_schedule(func, target)
            if fits(scheduled):
                made.update_func(name, scheduled)
    return made


def default_schedule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.tirx.PrimFunc:
    """Return a kernel scheduled for a CPU by rule. Deterministic.

    Its arguments are those of the workload, all of them as they lie.

    Raises:
        NoDefaultSchedule: If its plain loops are as good as what the rules could make of it.
    """
    return _by_rule(as_it_lies(func), target)


def packed_default_schedule(func: tvm.tirx.PrimFunc, target: Target) -> PackedKernel:
    """Return a kernel scheduled for a CPU by rule that takes large weights in the order in which it reads them.

    Raises:
        NoDefaultSchedule: If its plain loops are as good as what the rules could make of it.
    """
    scheduled = tvm.IRModule({"main": _by_rule(func, target)})
    try:
        made = unpacked(scheduled)
    except Exception as error:
        raise_if_out_of_memory(error)
        raise NoDefaultSchedule(clean(str(error), 300)) from error
    return PackedKernel(func=made.func.with_attr(IS_SCHEDULED, True), packings=made.packings)


def _by_rule(func: tvm.tirx.PrimFunc, target: Target) -> tvm.tirx.PrimFunc:
    bare = func.with_attr("global_symbol", "main")
    try:
        machine = Machine.of(target)
        made = _scheduled(tvm.IRModule({"main": bare}), machine)
        in_lanes = reduce_in_lanes(made or bare, machine)
        made = made if in_lanes.same_as(bare) else in_lanes
    except Exception as error:
        # TVM refuses a step now and then that looked legal: its error types are many, and each means plain loops.
        raise_if_out_of_memory(error)
        raise NoDefaultSchedule(clean(str(error), 300)) from error
    if made is None:
        raise NoDefaultSchedule("no rule fits")
    made = mark_rests(made)
    symbol = func.attrs.get("global_symbol")
    made = made.with_attr("global_symbol", symbol) if symbol else made.without_attr("global_symbol")
    return made.with_attr(IS_SCHEDULED, True)


def _scheduled(module: tvm.IRModule, machine: Machine) -> tvm.tirx.PrimFunc | None:
    sch = Schedule(module, debug_mask=0, error_render_level="none")
    inline_stages(sch)
    blocks = blocks_of(sch)
    if schedule_dots(sch, blocks, machine):
        return with_instructions(sch.mod["main"])
    for block in blocks:
        split_groups(sch, block, machine)
    if schedule_rows(sch, blocks, machine):
        return sch.mod["main"]
    done = [_schedule_one(sch, block, machine) for block in blocks]
    return sch.mod["main"] if any(done) else None


def _schedule_one(sch: Any, block: Any, machine: Machine) -> bool:
    stage = stage_of(sch, block)
    if stage is None:  # a stage that moved into another's loops, or that no rule is made for
        return False
    return any(rule(sch, block, machine) for rule in (schedule_tiled, schedule_lanes, schedule_plain))
