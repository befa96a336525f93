"""Let the last tile of a row overlap the one before it, where tiles do not divide the row.

A tile that the end of the row cuts is computed by elements, or by short vectors: of the 196 columns of an attention, tiles of 4 were a third
as fast as those of 48. The last tile begins earlier instead, and computes some columns once more, which are the same.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.tvm.base.tir import block_with, rebuilt, substitute, uses, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine

_ANNOTATION = "tunefarm.overlapping_tiles"


def overlap_tiles(sch: Any, blocks: list[Any], width: int) -> None:
    """Let tiles along a row overlap.

    Args:
        sch: The schedule.
        blocks: All blocks in the tiles: each has an axis along the row, split by the tiles' loop. The loops within a tile are unrolled, but the
            innermost, which is vectorised along the row.
        width: A tile's elements; the row has as many or more.
    """
    for block in blocks:
        sch.annotate(block, _ANNOTATION, width)


def shift_last_tiles(func: tirx.PrimFunc, _machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel whose annotated blocks compute whole tiles: the last one ends where its row does.

    Raises:
        InvariantError: If an annotated block has no condition that keeps it within its row.
    """
    if not any(map(_is_annotated, walk(func.body))):
        return func
    loops = [loop for loop in walk(func.body) if isinstance(loop, tirx.For)]
    lanes = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.VECTORIZED]
    unrolled = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.UNROLLED]
    at_start = [(variable, tirx.const(0, "int64")) for variable in (*lanes, *unrolled)]
    analyzer = Analyzer()

    def shifted(stmt: Any) -> Any:
        if not _is_annotated(stmt):
            return stmt
        values, others = list(stmt.iter_values), []
        row = next(axis for axis, value in enumerate(values) if uses(value, lanes))
        for condition in _conjuncts(stmt.predicate):
            if not isinstance(condition, tirx.LT) or not uses(condition.a, lanes):
                others.append(condition)
                continue
            begin = substitute(values[row], at_start)
            within = analyzer.simplify(values[row] - begin)
            latest = condition.b - int(stmt.block.annotations[_ANNOTATION])
            values[row] = tirx.min(begin, latest) + within
        if len(others) == len(_conjuncts(stmt.predicate)):
            raise InvariantError(f"the block {stmt.block.name_hint} has no condition along its tiles")
        left = {key: value for key, value in stmt.block.annotations.items() if key != _ANNOTATION}
        predicate = tirx.all(*others) if others else tirx.const(True, "bool")
        return SBlockRealize(values, predicate, block_with(stmt.block, annotations=left))

    return func.with_body(rebuilt(func.body, shifted))


def _is_annotated(node: Any) -> bool:
    return isinstance(node, SBlockRealize) and _ANNOTATION in node.block.annotations


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
