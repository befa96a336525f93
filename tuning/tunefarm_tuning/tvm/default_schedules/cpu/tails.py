"""Default schedules, the last step: what a loop leaves over is compiled apart from the rest of it.

A loop that a tile does not divide has a condition on every iteration, for the sake of its last. TVM splits such loops in two
where the condition is marked as likely and the build asks for it; what a schedule's own splits add is not marked. With
the condition nothing is kept in registers: a product of matrices with 116 columns takes ten to thirty times as long.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import SBlockRealize

from tunefarm_tuning.tvm.base.tir import rebuilt

SPLIT_RESTS: dict[str, Any] = {"s_tir.LoopPartition": {"partition_const_loop": True}}
"""For the context of a build, which splits them."""


def mark_rests(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel with the conditions on its loops marked as likely."""
    return func.with_body(rebuilt(func.body, _marked))


def _marked(stmt: Any) -> Any:
    if isinstance(stmt, SBlockRealize):
        return SBlockRealize(stmt.iter_values, _likely(stmt.predicate), stmt.block)
    return stmt


def _likely(condition: Any) -> Any:
    """Return a condition marked, each part of it: loops are split by one part at a time."""
    if isinstance(condition, tirx.And):
        return tirx.And(_likely(condition.a), _likely(condition.b))
    return condition if isinstance(condition, tirx.IntImm) else tirx.likely(condition)
