"""Loop partitioning: split loops so that their pieces have no conditions.

`partition_points` finds the indices at which a condition in a stage's body changes: the borders between the inputs of a
concatenation, the edges of a padding. A vector that crosses such a point is computed element by element.

`mark_tails` is for loops that a tile does not divide. Their last tile needs a condition, which TVM puts on every iteration.
TVM compiles the tail as a loop of its own where the condition is marked as likely and the build asks for it (`SPLIT_TAILS`),
but does not mark the conditions that a schedule's splits add. With the condition in the loop nothing stays in registers: a
matrix product with 116 columns takes ten to thirty times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer, detect_linear_equation

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import loop_with, rebuilt, walk

SPLIT_TAILS: dict[str, Any] = {"s_tir.LoopPartition": {"partition_const_loop": True}}
"""Configuration of a build's `PassContext`: compile the marked tails as separate loops."""

TAIL_HINT = "pragma_loop_partition_hint"
"""Annotation of a loop whose tail is to be compiled by itself."""

_HOLDS: dict[type, Callable[[int], bool]] = {
    tirx.LT: lambda difference: difference < 0,
    tirx.LE: lambda difference: difference <= 0,
    tirx.GT: lambda difference: difference > 0,
    tirx.GE: lambda difference: difference >= 0,
    tirx.EQ: lambda difference: difference == 0,
    tirx.NE: lambda difference: difference != 0,
}


def partition_points(sch: Any, block: Any) -> dict[int, list[int]]:
    """Return each loop's partition points, ascending: the values at which a condition on this loop alone changes.

    Loops without such a condition are left out. `stage_of` returns a stage for the block.
    """
    node = sch.get(block)
    analyzer = Analyzer()
    for variable in node.iter_vars:
        analyzer.bind(variable.var, tvm.ir.Range(0, variable.dom.extent))
    points_by_axis: dict[int, set[int]] = {}
    for condition in walk(node.body):
        if type(condition) not in _HOLDS:
            continue
        difference = analyzer.simplify(condition.a - condition.b)
        for axis, variable in enumerate(node.iter_vars):
            points = _changes_at(difference, variable, type(condition))
            if points:
                points_by_axis.setdefault(axis, set()).update(points)
    return {axis: sorted(points) for axis, points in points_by_axis.items()}


def _changes_at(difference: Any, variable: Any, kind: type) -> set[int]:
    parts = list(detect_linear_equation(difference, [variable.var]))
    numbers = (*parts, variable.dom.extent)
    if len(parts) != 2 or not all(isinstance(number, int | tirx.IntImm) for number in numbers):
        return set()
    slope, start = (int(part) for part in parts)
    if slope == 0:
        return set()
    # A comparison changes only next to the root of the difference, which rounding moves by at most one.
    holds, root = _HOLDS[kind], -start // slope
    near = range(max(1, root - 1), min(int(variable.dom.extent), root + 3))
    return {value for value in near if holds(slope * value + start) != holds(slope * (value - 1) + start)}


def mark_tails(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel with the conditions of its tails marked as likely."""
    return func.with_body(rebuilt(func.body, _marked))


def _marked(stmt: Any) -> Any:
    if isinstance(stmt, SBlockRealize):
        return SBlockRealize(stmt.iter_values, _likely(stmt.predicate), stmt.block)
    return stmt


def compares_loops(scheduled: tirx.PrimFunc) -> bool:
    """Return whether a scheduled kernel of open sizes stores what depends on a comparison of its loops, as a triangle of a matrix does.

    TVM 0.27 may then partition its loops wrongly: it writes outside of the result.
    """
    if all(static_shape(param) is not None for param in scheduled.params):
        return False
    return any(
        _compares_loops(condition)
        for node in walk(scheduled.body)
        if isinstance(node, tirx.BufferStore)
        for condition in walk(node.value)
        if type(condition) in _HOLDS
    )


def _compares_loops(condition: Any) -> bool:
    variables: list[Any] = []
    for part in walk(condition):
        if isinstance(part, tvm.ir.TensorLoad):
            return False
        if isinstance(part, tirx.Var) and not any(part.same_as(known) for known in variables):
            variables.append(part)
    return len(variables) > 1


def without_tail_hints(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel whose tails have their conditions in each iteration."""
    return func.with_body(rebuilt(func.body, _without_hint))


def _without_hint(stmt: Any) -> Any:
    if not isinstance(stmt, tirx.For) or TAIL_HINT not in stmt.annotations:
        return stmt
    kept = {name: value for name, value in stmt.annotations.items() if str(name) != TAIL_HINT}
    return loop_with(stmt, annotations=kept)


def _likely(condition: Any) -> Any:
    """Mark each term of a conjunction: TVM splits a loop by one term at a time."""
    if isinstance(condition, tirx.And):
        return tirx.And(_likely(condition.a), _likely(condition.b))
    return condition if isinstance(condition, tirx.IntImm) else tirx.likely(condition)
