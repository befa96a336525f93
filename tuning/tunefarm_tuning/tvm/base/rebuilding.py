"""Rebuilding a scheduled kernel's statements (TVM 0.27 exposes no mutator for TIR to Python)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize


def rebuilt(stmt: Any, change: Callable[[Any], Any]) -> Any:
    """Return a statement with its loops and placed blocks (``For``, ``SBlockRealize``) changed, the inner ones first."""
    if isinstance(stmt, tirx.For):
        return change(
            tirx.For(
                stmt.loop_var,
                stmt.min,
                stmt.extent,
                stmt.kind,
                rebuilt(stmt.body, change),
                stmt.thread_binding,
                stmt.annotations,
                stmt.step,
            )
        )
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([rebuilt(one, change) for one in stmt.seq])
    if isinstance(stmt, SBlockRealize):
        return change(SBlockRealize(stmt.iter_values, stmt.predicate, rebuilt(stmt.block, change)))
    if isinstance(stmt, SBlock):
        return SBlock(
            stmt.iter_vars,
            stmt.reads,
            stmt.writes,
            stmt.name_hint,
            rebuilt(stmt.body, change),
            stmt.init,
            stmt.alloc_buffers,
            stmt.match_buffers,
            stmt.annotations,
        )
    return stmt
