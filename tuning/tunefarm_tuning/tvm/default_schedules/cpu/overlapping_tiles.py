"""Let the last tile of a row overlap the one before it, where tiles do not divide the row.

A tile that the end of the row cuts is computed by elements, or by short vectors: of the 196 columns of an attention, tiles of 4 were a third
as fast as those of 48. The last tile begins earlier instead, and computes some columns once more, which are the same.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import (
    is_annotated,
    is_number,
    nodes_of,
    rebuilt,
    substitute,
    uses,
    without_annotation,
)
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import read_bytes
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, stage_of
from tunefarm_tuning.tvm.kernels.weight_packing import given_order, may_be_packed

_ANNOTATION = "tunefarm.overlapping_tiles"


class TilesDoNotOverlap(Exception):  # noqa: N818  (an outcome, caught in `schedule`)
    """A step behind a product goes through its results in another way than by its tiles."""


def may_overlap_tiles(sch: Any, block: Any, stage: Stage, loop: int, near_bytes: int) -> bool:
    """Return whether tiles along a loop may overlap: it is of a product of known sizes by a matrix that is not packed, and uses all its columns.

    Matrices of more than `near_bytes` are packed into the order of tiles where they may be.
    """
    func, node = sch.mod["main"], sch.get(block)
    consumers = [stage_of(sch, consumer) for consumer in sch.get_consumers(block)]
    if any(consumer is None or consumer.points < stage.writes[0].elements for consumer in consumers):
        return False
    if not all(isinstance(axis.dom.extent, tirx.IntImm) for axis in node.iter_vars):
        return False
    along = [index for index, read in enumerate(stage.reads) if read.strides[loop] == 1]
    if len(along) != 1 or loop in stage.shared or any(loop in read.near for read in stage.reads):
        return False
    matrix, source = stage.reads[along[0]], node.reads[along[0]].source
    is_packed = given_order(func, source) is not None or (
        read_bytes(matrix) > near_bytes and may_be_packed(func, source)
    )
    return not is_packed


def overlap_tiles(sch: Any, blocks: list[Any], extent: int, width: int) -> None:
    """Let tiles along a row overlap.

    Args:
        sch: The schedule.
        blocks: All blocks in the tiles: each has an axis along the row, split by the tiles' loop. The loops within a tile are unrolled, but the
            innermost, which is vectorised along the row.
        extent: The row's elements, as many as a tile's or more.
        width: A tile's elements.
    """
    for block in blocks:
        sch.annotate(block, _ANNOTATION, [extent, width])


def shift_last_tiles(func: tirx.PrimFunc, _machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel whose annotated blocks compute whole tiles: the last one ends where its row does.

    Raises:
        TilesDoNotOverlap: If an annotated block has no condition that keeps it within its row, or one for another row.
    """
    if not any(is_annotated(realize, _ANNOTATION) for realize in nodes_of(func.body, SBlockRealize)):
        return func
    loops = nodes_of(func.body, tirx.For)
    lanes = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.VECTORIZED]
    unrolled = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.UNROLLED]
    at_start = [(variable, tirx.const(0, "int64")) for variable in (*lanes, *unrolled)]
    analyzer = Analyzer()
    begins: list[tuple[Any, Any]] = []  # each tensor of results, and where a tile of it begins

    def shifted(stmt: Any) -> Any:
        if not is_annotated(stmt, _ANNOTATION):
            return stmt
        block = stmt.block
        extent, width = (int(number) for number in block.annotations[_ANNOTATION])
        values, others = list(stmt.iter_values), []
        row = next((axis for axis, value in enumerate(values) if uses(value, lanes)), None)
        begin = None
        for condition in _conjuncts(stmt.predicate):
            if row is None or not isinstance(condition, tirx.LT) or not uses(condition.a, lanes):
                others.append(condition)
            elif is_number(condition.b, extent):
                begin = analyzer.simplify(substitute(values[row], at_start))
                within = analyzer.simplify(values[row] - begin)
                values[row] = tirx.min(begin, tirx.const(extent - width, "int64")) + within
        results = [region.source for region in (*block.writes, *block.reads)]
        same = [known for result, known in begins if any(map(result.same_as, results))]
        if begin is None or not all(tvm_ffi.structural_equal(begin, known) for known in same):
            raise TilesDoNotOverlap(f"the block {block.name_hint} does not go through its row by tiles")
        begins.append((results[0], begin))
        predicate = tirx.all(*others) if others else tirx.const(True, "bool")
        return SBlockRealize(values, predicate, without_annotation(block, _ANNOTATION))

    return func.with_body(rebuilt(func.body, shifted))


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
