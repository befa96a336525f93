"""Write transposes of 32-bit elements as squares of vectors: loaded, transposed in registers by shuffles, and stored.

A square reads and writes whole lines of the cache. By elements, the lines of an image whose rows are 64 KB apart are thrown out of the
cache before they are full: the transpose of 32 channels of 128 x 128 pixels took ten times as long. Where a side is no multiple of
the vector, its last square begins earlier and overlaps the one before: both write the same elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import schedule_of
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import is_worth_threads
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, itemsize, stage_of

_BYTES = 4
_LEAST_LANES = 4
_INDEX = "int64"


@dataclass(frozen=True, slots=True)
class _Dim:
    """A loop of a copy: its iterations, and the elements between two of them in what is read and written."""

    extent: int
    read: int
    written: int


def write_transpose(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | None:
    """Return a kernel that copies a tensor with its dimensions in another order, written in squares of vectors; None for any other."""
    if len(func.params) != 2 or any(static_shape(param) is None for param in func.params):
        return None
    sch = schedule_of(func)
    blocks = list(sch.get_child_blocks(sch.get_sblock("root")))
    stage = stage_of(sch, blocks[0]) if len(blocks) == 1 else None
    if stage is None or not stage.is_copy or not stage.is_injective or len(stage.reads) != 1:
        return None
    node = sch.get(blocks[0])
    source, result = node.reads[0].source, node.writes[0].source
    if stage.reads[0].dtype != stage.writes[0].dtype or itemsize(stage.reads[0].dtype) != _BYTES:
        return None
    if not source.same_as(func.params[0]) or not result.same_as(func.params[1]):
        return None
    dims = _dims(stage)
    if not stage.points or dims is None or not _reaches_all(dims, stage):
        return None
    across = next((dim for dim in dims if dim.read == 1), None)
    along = next((dim for dim in dims if dim.written == 1), None)
    if across is None or along is None or across is along:
        return None
    lanes = machine.lanes(stage.writes[0].dtype)
    while lanes > min(across.extent, along.extent):
        lanes //= 2
    if lanes < _LEAST_LANES:
        return None
    outer = [dim for dim in dims if dim not in (across, along)]
    body = _squares(source, result, outer, across, along, lanes, parallel=is_worth_threads(stage))
    root = SBlock([], [_whole(source)], [_whole(result)], "root", body)
    return func.with_body(SBlockRealize([], tirx.const(True), root))


def _reaches_all(dims: list[_Dim], stage: Stage) -> bool:
    """Return whether a copy reads and writes tensors whole, from their first element: with no other strides it can begin nowhere else."""
    strides = ([(dim.extent, dim.read) for dim in dims], [(dim.extent, dim.written) for dim in dims])
    return all(
        access.elements == stage.points
        and min((stride for _, stride in loops), default=1) > 0
        and sum((extent - 1) * stride for extent, stride in loops) == stage.points - 1
        for access, loops in zip((stage.reads[0], stage.writes[0]), strides, strict=True)
    )


def _dims(stage: Stage) -> list[_Dim] | None:
    """Return the loops of a copy, those that run on from each other as one; None if one has no stride."""
    dims: list[_Dim] = []
    for axis, extent in enumerate(stage.extents):
        read, written = stage.reads[0].strides[axis], stage.writes[0].strides[axis]
        if read is None or written is None:
            return None
        if extent == 1:
            continue
        if dims and (dims[-1].read, dims[-1].written) == (read * extent, written * extent):
            dims[-1] = _Dim(dims[-1].extent * extent, read, written)
        else:
            dims.append(_Dim(extent, read, written))
    return dims


def _squares(
    source: Any, result: Any, outer: list[_Dim], across: _Dim, along: _Dim, lanes: int, *, parallel: bool
) -> Any:
    """Return the loop over all squares, along the rows of the result first."""
    dtype = str(source.dtype)
    size = [prod(int(extent) for extent in source.shape)]
    read, written = (tirx.decl_buffer(size, dtype, f"{buffer.name}_flat") for buffer in (source, result))
    sides = [-(-dim.extent // lanes) for dim in (across, along)]
    extents = [*(dim.extent for dim in outer), *sides]
    square = tirx.Var("square", _INDEX)
    positions: list[Any] = []
    rest: Any = square
    for extent in reversed(extents):
        positions.insert(0, rest % extent)
        rest = rest // extent
    starts = [
        position * lanes if dim.extent % lanes == 0 else tirx.min(position * lanes, dim.extent - lanes)
        for position, dim in zip(positions[-2:], (across, along), strict=True)
    ]
    corner = list(zip([*positions[:-2], *starts], [*outer, across, along], strict=True))
    first_read, first_written = tirx.Var("first_read", _INDEX), tirx.Var("first_written", _INDEX)
    statements: list[Any] = [
        tirx.Bind(first_read, sum(start * dim.read for start, dim in corner)),
        tirx.Bind(first_written, sum(start * dim.written for start, dim in corner)),
    ]
    vector = f"{dtype}x{lanes}"
    rows = [tirx.Var(f"row{number}", vector) for number in range(lanes)]
    statements += [
        tirx.Bind(row, tirx.BufferLoad(read, [_run(first_read + number * along.read, lanes)]))
        for number, row in enumerate(rows)
    ]
    rows = _transposed(rows, statements)
    statements += [
        tirx.BufferStore(written, row, [_run(first_written + number * across.written, lanes)])
        for number, row in enumerate(rows)
    ]
    kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
    squares = tirx.IntImm(_INDEX, prod(extents))
    loop = tirx.For(square, tirx.IntImm(_INDEX, 0), squares, kind, tirx.SeqStmt(statements))
    return tirx.SeqStmt(
        [tirx.DeclBuffer(read, data=source.data), tirx.DeclBuffer(written, data=result.data), loop]
    )


def _whole(buffer: Any) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])


def _run(first: Any, lanes: int) -> Any:
    return tirx.Ramp(first, tirx.const(1, _INDEX), lanes)


def _transposed(rows: list[Any], statements: list[Any]) -> list[Any]:
    """Return the columns of a square of vectors; its quarters change places, then the quarters of these, by statements that are appended."""
    lanes = len(rows)
    vector = f"{rows[0].ty.dtype}"
    half = lanes // 2
    while half:
        upper = [lane + (lanes - half if lane & half else 0) for lane in range(lanes)]
        lower = [lane + (lanes if lane & half else half) for lane in range(lanes)]
        mixed = list(rows)
        for number in (row for row in range(lanes) if not row & half):
            pair = [rows[number], rows[number + half]]
            for target, order in ((number, upper), (number + half, lower)):
                mixed[target] = tirx.Var(f"mixed{half}_{target}", vector)
                statements.append(tirx.Bind(mixed[target], tirx.Shuffle(pair, order)))
        rows = mixed
        half //= 2
    return rows
