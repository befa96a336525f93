"""Default schedules, the last step: what a loop leaves over is compiled apart from the rest of it.

A loop that a tile does not divide has a condition on every iteration, for the sake of its last. TVM splits such loops in two
where the condition is marked as likely and the build asks for it; what a schedule's own splits add is not marked. With
the condition nothing is kept in registers: a product of matrices with 116 columns takes ten to thirty times as long.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

SPLIT_RESTS: dict[str, Any] = {"s_tir.LoopPartition": {"partition_const_loop": True}}
"""For the context of a build, which splits them."""


def mark_rests(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel with the conditions on its loops marked as likely."""
    return func.with_body(_marked(func.body))


def _marked(stmt: Any) -> Any:
    if isinstance(stmt, tirx.For):
        return tirx.For(
            stmt.loop_var,
            stmt.min,
            stmt.extent,
            stmt.kind,
            _marked(stmt.body),
            stmt.thread_binding,
            stmt.annotations,
            stmt.step,
        )
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([_marked(one) for one in stmt.seq])
    if isinstance(stmt, SBlockRealize):
        return SBlockRealize(stmt.iter_values, _likely(stmt.predicate), _marked(stmt.block))
    if isinstance(stmt, SBlock):
        return SBlock(
            stmt.iter_vars,
            stmt.reads,
            stmt.writes,
            stmt.name_hint,
            _marked(stmt.body),
            stmt.init,
            stmt.alloc_buffers,
            stmt.match_buffers,
            stmt.annotations,
        )
    return stmt


def _likely(condition: Any) -> Any:
    """Return a condition marked, each part of it: loops are split by one part at a time."""
    if isinstance(condition, tirx.And):
        return tirx.And(_likely(condition.a), _likely(condition.b))
    return condition if isinstance(condition, tirx.IntImm) else tirx.likely(condition)
