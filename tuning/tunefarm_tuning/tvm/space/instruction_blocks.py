"""A kernel's dot product with the CPU's instruction for it as one step, for MetaSchedule's rules: they tile the loops around it.

The rules see a reduction over steps of several products each, whose results are vectors. They would find neither the instruction nor
the loops that it takes, and TVM's own rule for intrinsics (``MultiLevelTilingWithIntrin``) refuses tiles that leave a tail.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.tir import loop_with, rebuilt, schedule_of, walk
from tunefarm_tuning.tvm.default_schedules.cpu.dot_instructions import (
    instruction,
    instruction_loops,
    lanes_of,
    vector_indices,
)
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.kernels.dot_products import KINDS
from tunefarm_tuning.tvm.kernels.weight_packing import with_weights_as_given

_INLINE_RULE = "meta_schedule.inline_rule"
_OUTER = "_o"  # TVM's suffix for what `blockize` puts around a block


def with_instruction_block(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return a workload with the steps of its dot product as instructions; the same if it has none that the CPU has.

    Its weights keep the order in which the instruction reads them.
    """
    func = mod["main"]
    machine = Machine.of(target)
    stages = [
        str(node.name_hint)
        for node in walk(func.body)
        if isinstance(node, SBlock) and node.name_hint in KINDS
    ]
    lanes = lanes_of(KINDS[stages[0]], machine) if len(stages) == 1 else 0
    if not lanes:
        return mod
    sch = schedule_of(with_weights_as_given(func))
    block = sch.get_sblock(stages[0])
    for producer in sch.get_producers(block):
        # TVM would put an element of it in place of the instruction's vector.
        sch.annotate(producer, _INLINE_RULE, "disable")
    sch.blockize(instruction_loops(sch, block, lanes))

    def replaced(stmt: Any) -> Any:
        is_step = isinstance(stmt, SBlockRealize) and stmt.block.name_hint == stages[0] + _OUTER
        return _step(stmt, lanes, machine) if is_step else stmt

    scheduled = sch.mod["main"]
    return tvm.IRModule({"main": scheduled.with_body(rebuilt(scheduled.body, replaced))}, attrs=mod.attrs)


def with_scalar_loops_around(schedule: Schedule) -> Schedule:
    """Return a schedule of the same kernel without vectorised loops around an instruction, which are unrolled; it has no trace.

    MetaSchedule vectorises the innermost loop of every block, and TVM makes no vectors of vectors.
    """
    func = schedule.mod["main"]
    return schedule_of(func.with_body(rebuilt(func.body, _unvectorised)))


def _unvectorised(stmt: Any) -> Any:
    if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.VECTORIZED:
        return stmt
    if not any(isinstance(node, SBlock) and _is_step(node) for node in walk(stmt.body)):
        return stmt
    return loop_with(stmt, kind=tirx.ForKind.UNROLLED)


def _is_step(block: Any) -> bool:
    """Return whether a block is the instruction, or clears its sums."""
    return str(block.name_hint).removesuffix("_init").removesuffix("_update") in KINDS


def _step(stmt: Any, lanes: int, machine: Machine) -> Any:
    block = stmt.block
    (result,) = block.writes
    zero = tirx.Broadcast(tirx.const(0, str(result.source.dtype)), lanes)
    name = str(block.name_hint).removesuffix(_OUTER)
    # Iterations over what is inside the instruction: its products, and its sums where they have a dimension of their own.
    inside = {len(block.iter_vars) - 1}
    if KINDS[name].rows > 1:
        inside.add(len(result.region) - 1)
    kept = [number for number in range(len(block.iter_vars)) if number not in inside]
    step = SBlock(
        [block.iter_vars[number] for number in kept],
        block.reads,
        block.writes,
        name,
        instruction(block, lanes, machine),
        tirx.BufferStore(result.source, zero, list(vector_indices(result, lanes))),
    )
    return SBlockRealize([stmt.iter_values[number] for number in kept], stmt.predicate, step)
