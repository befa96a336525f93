"""Join half vectors of a tile in pairs: 24 channels are a vector of 16 and one of 8, not three of 8.

A schedule's loop has vectors of one length. Channels that no whole vector divides were computed in halves, at half of the CPU's rate: the
convolutions of a face detector of 24 channels took exactly as long as its multipliers need for that.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tunefarm_tuning.tvm.base.tir import loop_with, nodes_of, rebuilt, substitute
from tunefarm_tuning.tvm.default_schedules.stage import Machine

_ANNOTATION = "tunefarm.joined_vectors"


def join_in_pairs(sch: Any, vectors: Any) -> None:
    """Let the vectors of a scheduled loop be computed in pairs: the loop inside of it is vectorised."""
    sch.annotate(vectors, _ANNOTATION, 1)


def insert_joined_vectors(func: tirx.PrimFunc, _machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel whose annotated loops over vectors are the pairs of these, and the one that is left."""
    if not any(map(_is_annotated, nodes_of(func.body, tirx.For))):
        return func
    return func.with_body(rebuilt(func.body, _joined))


def _is_annotated(node: Any) -> bool:
    return isinstance(node, tirx.For) and _ANNOTATION in node.annotations


def _joined(stmt: Any) -> Any:
    if not _is_annotated(stmt):
        return stmt
    count = int(stmt.extent)
    pieces = [_vector(stmt, first, min(2, count - first)) for first in range(0, count, 2)]
    return tirx.SeqStmt(pieces) if len(pieces) > 1 else pieces[0]


def _vector(vectors: Any, first: int, together: int) -> Any:
    """Return the loop over the elements of a vector, or of two that follow each other."""
    lanes = vectors.body
    dtype = str(lanes.loop_var.expr_ty().dtype)
    lane = tirx.Var(f"{lanes.loop_var.name}_{first}", dtype)
    at = [(vectors.loop_var, tirx.const(first, dtype)), (lanes.loop_var, lane)]
    extent = tirx.IntImm(dtype, int(lanes.extent) * together)
    return loop_with(lanes, loop_var=lane, extent=extent, body=substitute(lanes.body, at))
