"""Write transposes of 32-bit elements as squares of vectors: loaded, transposed in registers by shuffles, and stored.

A square reads and writes whole lines of the cache. By elements, the lines of an image whose rows are 64 KB apart are thrown out of the
cache before they are full: the transpose of 32 channels of 128 x 128 pixels took ten times as long. Where a side is no multiple of
the vector, its last square begins earlier and overlaps the one before: both write the same elements. What the kernel computes of
transposed elements, and of others, is computed of each row of the square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import substitute
from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import is_worth_threads
from tunefarm_tuning.tvm.default_schedules.stage import (
    Machine,
    Stage,
    blocks_of,
    inlined_schedule,
    itemsize,
    stage_of,
)

_BYTES = 4
_LEAST_LANES = 4
_INDEX = "int64"


@dataclass(frozen=True, slots=True)
class _Dim:
    """Loops that run on from each other, as one.

    Attributes:
        axes: The loops, as positions in the stage.
        extent: Iterations of all of them together.
        read: For each read, the elements between two iterations.
        written: The same of the result.
    """

    axes: tuple[int, ...]
    extent: int
    read: tuple[int, ...]
    written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Squares:
    """A kernel that can be written in squares.

    Attributes:
        stage: Its only stage.
        block: The block of it.
        transposed: Positions of the reads that go through squares.
        across: The dimension along which these are contiguous.
        along: The one along which the result is.
        outer: The others.
        lanes: The side of a square.
    """

    stage: Stage
    block: Any
    transposed: tuple[int, ...]
    across: _Dim
    along: _Dim
    outer: tuple[_Dim, ...]
    lanes: int


def write_transpose(
    func: tirx.PrimFunc, machine: Machine, inlined: Schedule | None = None
) -> tirx.PrimFunc | None:
    """Return an elementwise kernel, with reads whose dimensions are in another order, written in squares of vectors; None for any other.

    Args:
        func: The kernel.
        machine: What runs it.
        inlined: A schedule of the kernel whose stages are inlined, if there is one. It stays as it is.
    """
    if any(static_shape(param) is None for param in func.params):
        return None
    squares = _squares_of(func, inlined or inlined_schedule(func), machine)
    if squares is None:
        return None
    node = squares.block
    body = _loop_over(squares)
    root = SBlock([], list(map(_whole, _buffers(node.reads))), [_whole(node.writes[0].source)], "root", body)
    return func.with_body(SBlockRealize([], tirx.const(True), root))


def _squares_of(func: tirx.PrimFunc, sch: Schedule, machine: Machine) -> _Squares | None:
    blocks = blocks_of(sch)
    stage = stage_of(sch, blocks[0]) if len(blocks) == 1 else None
    if stage is None or not stage.is_injective or stage.selects or len(stage.writes) != 1 or not stage.points:
        return None
    node = sch.get(blocks[0])
    given = [*(region.source for region in node.reads), node.writes[0].source]
    if not all(any(buffer.same_as(param) for param in func.params) for buffer in given):
        return None
    dims = _dims(stage)
    along = next((dim for dim in dims or () if dim.written == 1), None)
    if dims is None or along is None or not _reaches_all(stage.writes[0], stage):
        return None
    transposed = tuple(number for number, step in enumerate(along.read) if step not in (0, 1))
    across = next((dim for dim in dims if transposed and dim.read[transposed[0]] == 1), None)
    if across is None or across is along:
        return None
    for number in transposed:
        read = stage.reads[number]
        if across.read[number] != 1 or itemsize(read.dtype) != _BYTES or not _reaches_all(read, stage):
            return None
    lanes = machine.vector_bytes // _BYTES
    while lanes > min(across.extent, along.extent):
        lanes //= 2
    if lanes < _LEAST_LANES:
        return None
    outer = tuple(dim for dim in dims if dim not in (across, along))
    return _Squares(
        stage=stage, block=node, transposed=transposed, across=across, along=along, outer=outer, lanes=lanes
    )


def _reaches_all(access: Access, stage: Stage) -> bool:
    """Return whether a stage reads or writes a tensor whole, from its first element: with no other strides it can begin nowhere else."""
    loops = [
        (extent, stride) for extent, stride in zip(stage.extents, access.strides, strict=True) if extent > 1
    ]
    return (
        access.elements == stage.points
        and all(stride is not None and stride > 0 for _, stride in loops)
        and sum((extent - 1) * (stride or 0) for extent, stride in loops) == stage.points - 1
    )


def _dims(stage: Stage) -> list[_Dim] | None:
    """Return the loops of a stage, those that run on from each other as one; None if one has no stride."""
    dims: list[_Dim] = []
    for axis, extent in enumerate(stage.extents):
        read, written = [access.strides[axis] for access in stage.reads], stage.writes[0].strides[axis]
        if written is None or None in read:
            return None
        dim = _Dim((axis,), extent, tuple(step for step in read if step is not None), written)
        if extent == 1:
            continue
        run_on = (*(step * extent for step in dim.read), written * extent)
        if dims and (*dims[-1].read, dims[-1].written) == run_on:
            dim = _Dim((*dims[-1].axes, axis), dims[-1].extent * extent, dim.read, written)
            dims.pop()
        dims.append(dim)
    return dims


def _loop_over(squares: _Squares) -> Any:
    """Return the loop over all squares, along the rows of the result first."""
    lanes, inner = squares.lanes, (squares.across, squares.along)
    extents = [*(dim.extent for dim in squares.outer), *(-(-dim.extent // lanes) for dim in inner)]
    square = tirx.Var("square", _INDEX)
    positions: list[Any] = []
    rest: Any = square
    for extent in reversed(extents):
        positions.insert(0, rest % extent)
        rest = rest // extent
    starts = [
        position * lanes if dim.extent % lanes == 0 else tirx.min(position * lanes, dim.extent - lanes)
        for position, dim in zip(positions[-2:], inner, strict=True)
    ]
    dims = [*squares.outer, *inner]
    corner = [tirx.Var(f"at{number}", _INDEX) for number in range(len(dims))]
    statements: list[Any] = [
        tirx.Bind(variable, tirx.const(0, _INDEX) + start)
        for variable, start in zip(corner, [*positions[:-2], *starts], strict=True)
    ]
    aliases: list[Any] = []
    columns = {
        number: _columns(squares, number, list(zip(corner, dims, strict=True)), aliases, statements)
        for number in squares.transposed
    }
    at = dict(zip(dims, corner, strict=True))
    statements.append(_stores(squares, columns, at))
    kind = tirx.ForKind.PARALLEL if is_worth_threads(squares.stage) else tirx.ForKind.SERIAL
    count = tirx.IntImm(_INDEX, prod(extents))
    loop = tirx.For(square, tirx.IntImm(_INDEX, 0), count, kind, tirx.SeqStmt(statements))
    return tirx.SeqStmt([*aliases, loop])


def _columns(
    squares: _Squares,
    number: int,
    corner: list[tuple[Any, _Dim]],
    aliases: list[Any],
    statements: list[Any],
) -> list[Any]:
    """Return the columns of a square of a read tensor as vectors, by statements that are appended."""
    source, lanes = squares.block.reads[number].source, squares.lanes
    dtype = str(source.dtype)
    flat = tirx.decl_buffer([prod(map(int, source.shape))], dtype, f"{source.name}_flat")
    aliases.append(tirx.DeclBuffer(flat, data=source.data))
    first = tirx.Var(f"first{number}", _INDEX)
    statements.append(tirx.Bind(first, sum(at * dim.read[number] for at, dim in corner)))
    rows = [tirx.Var(f"row{number}_{row}", f"{dtype}x{lanes}") for row in range(lanes)]
    step = squares.along.read[number]
    statements += [
        tirx.Bind(row, tirx.BufferLoad(flat, [_run(first + step_number * step, lanes)]))
        for step_number, row in enumerate(rows)
    ]
    return _transposed(rows, statements, f"{number}_")


def _stores(squares: _Squares, columns: dict[int, list[Any]], at: dict[_Dim, Any]) -> Any:
    """Return the statement that stores what the kernel computes of the columns."""
    lanes, reads = squares.lanes, squares.block.reads
    local = {
        number: tirx.decl_buffer(
            [lanes * lanes], str(reads[number].source.dtype), f"square{number}", scope="local"
        )
        for number in columns
    }
    statements = [
        tirx.BufferStore(local[number], column, [_run(tirx.const(row * lanes, _INDEX), lanes)])
        for number, vectors in columns.items()
        for row, column in enumerate(vectors)
    ]
    for row in range(lanes):
        lane = tirx.Var("lane", _INDEX)
        index = tirx.const(row * lanes, _INDEX) + lane
        inside = {squares.across: at[squares.across] + row, squares.along: at[squares.along] + lane}
        values = list(_values(squares, {**at, **inside}))

        def element(load: Any, index: Any = index) -> Any:
            number = next((n for n in local if load.source.same_as(reads[n].source)), None)
            return load if number is None else tirx.BufferLoad(local[number], [index])

        store = tvm_ffi.structural_map(squares.block.body, [(tvm.ir.expr.TensorLoad, element)])
        statements.append(
            tirx.For(
                lane,
                tirx.IntImm(_INDEX, 0),
                tirx.IntImm(_INDEX, lanes),
                tirx.ForKind.VECTORIZED,
                substitute(store, values),
            )
        )
    block = SBlock(
        [],
        list(map(_whole, _buffers(reads))),
        [_whole(squares.block.writes[0].source)],
        "square",
        tirx.SeqStmt(statements),
        None,
        list(local.values()),
    )
    return SBlockRealize([], tirx.const(True), block)


def _values(squares: _Squares, at: dict[_Dim, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the variable of each loop of the stage, and its value where the dimensions have these."""
    variables = list(squares.block.iter_vars)
    known = dict.fromkeys(range(len(variables)), tirx.const(0, _INDEX))
    for dim, value in at.items():
        rest = value
        for axis in reversed(dim.axes[1:]):
            known[axis] = rest % squares.stage.extents[axis]
            rest = rest // squares.stage.extents[axis]
        known[dim.axes[0]] = rest
    for axis, value in known.items():
        variable = variables[axis].var
        dtype = str(variable.expr_ty().dtype)
        yield variable, value if dtype == _INDEX else tirx.Cast(dtype, value)


def _buffers(regions: Sequence[Any]) -> list[Any]:
    return [region.source for region in regions]


def _whole(buffer: Any) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range(0, extent) for extent in buffer.shape])


def _run(first: Any, lanes: int) -> Any:
    return tirx.Ramp(first, tirx.const(1, _INDEX), lanes)


def _transposed(rows: list[Any], statements: list[Any], name: str) -> list[Any]:
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
                mixed[target] = tirx.Var(f"mixed{name}{half}_{target}", vector)
                statements.append(tirx.Bind(mixed[target], tirx.Shuffle(pair, order)))
        rows = mixed
        half //= 2
    return rows
