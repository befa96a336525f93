"""Schedule reductions along the last axis, alone or in a chain of stages over the same rows: softmax, normalisations, means."""

from __future__ import annotations

from math import prod
from typing import Any

from tunefarm_tuning.tvm.base.tir import REDUCES
from tunefarm_tuning.tvm.default_schedules.access import Access, nominal_size
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    LEAST_VECTORS,
    PARALLEL_POINTS,
    is_worth_threads,
    reads_indices,
    vectorize_inner,
)
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import vector_loop_of
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, blocks_of, stage_of

_MIN_ROW = 32
"""Least number of elements of a row that is reduced in SIMD lanes."""
_MOST_LANES_OF_ALL = 64
"""Partial results where all elements are reduced to one."""


def lanes_of(stage: Stage, machine: Machine) -> int:
    """Return the number of SIMD lanes for a reduction along contiguous elements; 0 for any other stage."""
    reduction = stage.reduction
    if not reduction or len(stage.writes) != 1 or reduction[0] != len(stage.extents) - len(reduction):
        return 0
    points = prod(stage.extents[loop] for loop in reduction)
    if points < _MIN_ROW or not all(_runs_on(read, stage) for read in stage.reads):
        return 0
    most = lanes = machine.lanes(stage.writes[0].dtype)
    while lanes > 1 and points % lanes:
        lanes //= 2
    # A tail would need a condition, which `compute_at` loses.
    return lanes if lanes >= min(4, most) else 0


def _is_ragged(stage: Stage, lanes: int, machine: Machine) -> bool:
    """Return whether a reduction is left serial, for `vectorize_ragged_reductions`: short vectors fit its row, and a few long ones take less."""
    most = machine.lanes(stage.writes[0].dtype)
    if len(stage.reduction) > 1 or lanes == most or stage.selects:
        return False
    return stage.extents[stage.reduction[0]] >= LEAST_VECTORS * most


def _runs_on(read: Access, stage: Stage) -> bool:
    """Return whether the loops of a reduction, as one, read neighbouring elements, or all of them the same one."""
    strides = [read.strides[loop] for loop in stage.reduction]
    if not any(strides):
        return None not in strides
    step = 1
    for loop, stride in reversed(list(zip(stage.reduction, strides, strict=True))):
        if stride != step and stage.extents[loop] > 1:
            return False
        step *= stage.extents[loop]
    return True


def split_lanes(sch: Any, block: Any, stage: Stage, lanes: int) -> Any:
    """Split a reduction into partial results, one per lane, and their combination; return the block of the partial results."""
    reduced = list(sch.get_loops(block))[-len(stage.reduction) :]
    loop = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    _, inner = sch.split(loop, [None, lanes])
    partial = sch.rfactor(inner, len(list(sch.get(block).writes[0].region)))
    sch.set_scope(partial, 0, "local")
    return partial


def schedule_row_chain(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Schedule stages over the same rows, one row at a time; return whether the kernel is such a chain."""
    stages = [stage_of(sch, block) for block in blocks]
    known = [stage for stage in stages if stage is not None]
    if len(known) != len(stages) or len(blocks) < 2 or not known[-1].is_injective:
        return False
    if any(not list(sch.get_consumers(block)) for block in blocks[:-1]):
        return False  # the kernel has several results
    if any(
        not stage.is_injective and not lanes_of(stage, machine) and vector_loop_of(stage) is not None
        for stage in known
    ):
        return False
    depth = _shared_depth(known)
    if depth == 0:
        return False
    if all(stage.is_injective for stage in known) and prod(known[-1].extents[:depth]) == 1:
        return False  # one row is all of them, and threads could not share it
    parts: list[tuple[Any, int, bool]] = []  # block, lanes, whether it computes partial results
    for block, stage in zip(blocks[:-1], known[:-1], strict=True):
        lanes = lanes_of(stage, machine)
        if lanes and not _is_ragged(stage, lanes, machine):
            parts.append((split_lanes(sch, block, stage, lanes), lanes, True))
            parts.append((block, 1, False))
        else:
            parts.append((block, machine.lanes(stage.writes[0].dtype), False))
    last = blocks[-1]
    loops = list(sch.get_loops(last))
    rows = sch.fuse(*loops[:depth]) if depth > 1 else loops[0]
    points = sum(stage.points * (8 if stage.is_costly else 1) for stage in known)
    for block, _, _ in reversed(parts):
        sch.compute_at(block, rows)
    if points >= PARALLEL_POINTS and nominal_size(sch.get(rows).extent) > 1:
        sch.parallel(rows)
    may_have_tail = not any(reads_indices(stage) for stage in known)
    for block, lanes, is_partial in parts:
        _within_row(sch, block, lanes, is_partial=is_partial, may_have_tail=may_have_tail)
    inner = list(sch.get_loops(last))[1:]
    if inner:
        lanes = machine.lanes(known[-1].writes[0].dtype)
        vectorize_inner(sch, inner, lanes, unroll=False, may_have_tail=may_have_tail)
    return True


def schedule_row_reduction(sch: Any, block: Any, machine: Machine) -> bool:
    """Schedule a reduction along contiguous elements; return whether the block is one."""
    stage = stage_of(sch, block)
    if stage is None:
        return False
    lanes = lanes_of(stage, machine)
    if not lanes:
        return False
    if not stage.spatial:
        _reduce_all(sch, block, stage, lanes)
        return True
    partial = split_lanes(sch, block, stage, lanes)
    loops = list(sch.get_loops(block))
    count = len(stage.spatial)
    rows = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    sch.compute_at(partial, rows)
    if is_worth_threads(stage) and nominal_size(sch.get(rows).extent) > 1:
        sch.parallel(rows)
    _within_row(sch, partial, lanes, is_partial=True)
    return True


def _reduce_all(sch: Any, block: Any, stage: Stage, lanes: int) -> None:
    """Schedule a reduction of all elements to one, in several vectors: a result is there some cycles before it can be used."""
    while lanes < _MOST_LANES_OF_ALL and stage.points % (2 * lanes) == 0:
        lanes *= 2
    for other in blocks_of(sch):
        if not list(sch.get_loops(other)):
            sch.add_unit_loop(other)  # TVM's `rfactor` fails where a block beside it has no loop
    partial = split_lanes(sch, block, stage, lanes)
    steps, lane = sch.get_loops(partial)
    sch.vectorize(lane)
    init = sch.decompose_reduction(partial, steps)
    sch.vectorize(list(sch.get_loops(init))[-1])


def _within_row(sch: Any, block: Any, lanes: int, *, is_partial: bool, may_have_tail: bool = False) -> None:
    """Vectorise the loops of a block inside a row."""
    loops = list(sch.get_loops(block))[1:]
    if is_partial:
        lane, *rest = loops  # the lane, what the row has beside the reduced elements, the steps
        steps = rest[-1]
        sch.reorder(*rest, lane)
        sch.vectorize(lane)
        init = sch.decompose_reduction(block, steps)
        sch.vectorize(list(sch.get_loops(init))[-1])
    elif loops and lanes > 1 and not _reduces(sch, block):
        vectorize_inner(sch, loops, lanes, unroll=False, may_have_tail=may_have_tail)


def _reduces(sch: Any, block: Any) -> bool:
    return any(int(variable.iter_type) == REDUCES for variable in sch.get(block).iter_vars)


def _shared_depth(stages: list[Stage]) -> int:
    """Return how many outer loops all stages share such that each reads only its own row of the other stages' results.

    Where rows are reduced to a number each, the last stage may have no loop of its own.
    """
    names = {stage.writes[0].buffer for stage in stages}
    depth = min(len(stage.spatial) for stage in stages)
    last = stages[-1]
    if not any(stage.reduction for stage in stages):
        depth = min(depth, len(last.extents) - 1)
    while depth > 0:
        extents = last.extents[:depth]
        if all(
            stage.extents[:depth] == extents and not any(stage.reduces[:depth]) for stage in stages
        ) and all(_keeps_rows(stage, names, depth) for stage in stages):
            return depth
        depth -= 1
    return 0


def _keeps_rows(stage: Stage, names: set[str], depth: int) -> bool:
    """Return whether a stage writes only its own row, and reads only this row of the named buffers."""
    for access in (*stage.reads, *stage.writes):
        if access.buffer not in names:
            continue
        elements = access.elements
        for extent, stride in zip(stage.extents[:depth], access.strides[:depth], strict=True):
            elements //= extent
            if stride is None or (extent > 1 and stride != elements):
                return False
    return True
