"""Winograd's convolution F(m x m, 3 x 3) in three kernels: input transform, batched matmul, output transform.

The matmul does all multiplications, and is tuned like any other kernel. The transforms are a few additions per element. They
are bound by memory, and come with a fixed schedule.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). F(4 x 4) takes a quarter of the
multiplications of a direct convolution, F(2 x 2) four ninths; the transformed weights are 4 and 1.8 times as large.

The product of F(2 x 2) may be of bfloat16 (`lanes`, the sums of the CPU's instruction), with sums in float32: its transforms double the rounding errors of a convolution of
bfloat16, those of F(4 x 4) would multiply them by ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.tvm.base.relax_graph import fused_kernel
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, int64_sizes, schedule_of, walk, whole
from tunefarm_tuning.tvm.kernels.direct_conv import DirectConv
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16, batch_sums, packed
from tunefarm_tuning.tvm.kernels.weight_packing import with_weights

Matrix = NDArray[np.float64]

_MATRICES: dict[int, tuple[list[list[float]], list[list[float]], list[list[float]]]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}
"""The matrices by m that transform input tiles, weights and results from both sides (B transposed, G, A transposed)."""

TILES = tuple(_MATRICES)
"""The supported m."""

_VECTORS = (16, 8, 4)
_NARROW = "bfloat16"


def tiles_of(conv: DirectConv, m: int) -> tuple[int, int]:
    """Return the numbers of tiles of m x m results that cover a convolution's height and width."""
    return -(-conv.out_shape[1] // m), -(-conv.out_shape[2] // m)


def positions(conv: DirectConv, m: int) -> int:
    """Return the number of tiles: the rows of the matmul."""
    height, width = tiles_of(conv, m)
    return conv.out_shape[0] * height * width


def transform_weights(weights: NDArray[np.float32], m: int, lanes: int = 0) -> NDArray[Any]:
    """Return weights ``(3, 3, in, out)`` transformed for the matmul: ``((m + 2)², in, out)``; of bfloat16, packed for an instruction of `lanes` sums."""
    g = np.array(_MATRICES[m][1])
    # a product of two matrices, which takes a seventh of the time of `einsum`
    transformed = np.kron(g, g) @ weights.astype(np.float64).reshape(9, -1)
    result: NDArray[Any] = transformed.reshape(-1, *weights.shape[2:]).astype(np.float32)
    if lanes:
        narrow = result.astype(numpy_dtype(_NARROW))
        result = np.stack([packed(product, lanes, BFLOAT16.products) for product in narrow])
    return np.ascontiguousarray(result)


def input_transform(conv: DirectConv, m: int, lanes: int = 0) -> tirx.PrimFunc:
    """Return the scheduled kernel that transforms the input: NHWC to float32 ``((m + 2)², tiles, channels)``.

    For an instruction of `lanes` sums it is bfloat16, ``((m + 2)², 1, tiles, channels)``. It is written out, step by step: TVM takes five
    times as long to lower the same from an expression for all elements.
    """
    n, _, _, c = conv.data_shape
    size, matrix = m + 2, _MATRICES[m][0]
    high, wide = tiles_of(conv, m)
    single, dtype = _single(lanes), _NARROW if lanes else "float32"
    vector = _vector(c)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, IS_SCHEDULED: True})
        x = T.arg("x", T.Buffer(int64_sizes(conv.data_shape), conv.dtype))
        result = T.arg("across", T.Buffer(int64_sizes((size * size, *single, n * high * wide, c)), dtype))
        with T.sblock("transform"):
            T.reads([whole(x)])
            T.writes([whole(result)])
            tile = T.sblock_alloc_buffer((size, size, vector), "float32")
            down = T.sblock_alloc_buffer((size, vector), "float32")
            rows, columns, parts = int64_sizes((n * high, wide, c // vector))
            with T.parallel(rows) as row, T.serial(columns) as column, T.serial(parts) as part:
                _load_tile(tile, x, conv, (row // high, row % high * m, column * m, part * vector))
                for i, factors in enumerate(matrix):
                    with T.unroll(size) as s, T.vectorized(vector) as k:
                        column_of_tile = [tile[r, s, k] for r in range(size)]
                        T.buffer_store(down, _combine(factors, column_of_tile.__getitem__), [s, k])
                    for j, factors_across in enumerate(matrix):
                        with T.vectorized(vector) as k:
                            sums = [down[s, k] for s in range(size)]
                            value = _combine(factors_across, sums.__getitem__).astype(dtype)
                            at = [i * size + j, *(0 for _ in single), row * wide + column, part * vector + k]
                            T.buffer_store(result, value, at)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _load_tile(tile: Any, x: Any, conv: DirectConv, at: tuple[Any, Any, Any, Any]) -> None:
    """Load a tile of an image that begins at a row, a column and a channel of the padded input; what is outside is zero."""
    image, top, left, channel = at
    _, height, width, _ = conv.data_shape
    size = int(tile.shape[0])

    def load(*, inside: bool) -> None:
        with T.unroll(size) as i, T.unroll(size) as j, T.vectorized(tile.shape[-1]) as k:
            y, z = top + (i - conv.padding), left + (j - conv.padding)
            value = x[image, y, z, channel + k].astype("float32")
            if not inside:
                exists = tirx.all(y >= 0, y < height, z >= 0, z < width)
                value = tirx.if_then_else(exists, value, tirx.const(0, "float32"))
            T.buffer_store(tile, value, [i, j, k])

    within = [top + (size - conv.padding) <= height, left + (size - conv.padding) <= width]
    if conv.padding:
        within += [top >= conv.padding, left >= conv.padding]
    with T.If(tirx.all(*within)):
        with T.Then():
            load(inside=True)
        with T.Else():
            load(inside=False)


def matmul(conv: DirectConv, m: int, lanes: int = 0) -> tirx.PrimFunc:
    """Return the unscheduled kernel that multiplies tiles with weights; it is tuned, and its weights may be packed."""
    size, count = (m + 2) ** 2, positions(conv, m)
    inner, outer = conv.data_shape[3], conv.out_shape[3]
    if lanes:
        products = BFLOAT16.products
        tiles = _placeholder((size, 1, count, inner), "tiles", _NARROW)
        shape = (size, -(-outer // lanes), inner // products, lanes * products)
        weights = _placeholder(shape, "weights", _NARROW)
        return with_weights(_prim_func([tiles, weights, batch_sums(BFLOAT16, tiles, weights)]), [1])
    tiles = _placeholder((size, count, inner), "tiles")
    weights = _placeholder((size, inner, outer), "weights")
    k = te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", inner)), name="k")
    product = te.compute(
        int64_sizes((size, count, outer)),
        lambda t, p, o: te.sum(tiles[t, p, k] * weights[t, k, o], axis=k),
        name="matmul",
    )
    return with_weights(_prim_func([tiles, weights, product]), [1])


def output_transform(func: tirx.PrimFunc, conv: DirectConv, m: int, lanes: int = 0) -> tirx.PrimFunc | None:
    """Return the scheduled kernel that transforms the matmul's result, epilogue of the convolution included.

    Its arguments are the matmul's result, then those of the fused kernel that `kept_arguments` lists. None if the epilogue cannot
    be computed by tiles of ``m x m`` results.
    """
    joined = _join(_output_tiles(conv, m, lanes), func, conv)
    try:
        return _schedule_output(joined, conv, m)
    except s_tir.ScheduleError:
        return None


def kept_arguments(func: tirx.PrimFunc, conv: DirectConv) -> list[int]:
    """Return the indices of the fused kernel's arguments for its output transform: those that the epilogue reads, and the output."""
    read = _read_by(conv.epilogue)
    last = len(func.params) - 1
    return [i for i, param in enumerate(func.params) if i == last or param.__chandle__() in read]


def _output_tiles(conv: DirectConv, m: int, lanes: int) -> tirx.PrimFunc:
    size, matrix = m + 2, np.array(_MATRICES[m][2], dtype=float)
    high, wide = tiles_of(conv, m)
    count, channels = positions(conv, m), conv.out_shape[3]
    single = _single(lanes)
    room = -(-channels // lanes) * lanes if lanes else channels
    product = _placeholder((size * size, *single, count, room), "product")
    down = te.compute(
        int64_sizes((m, size, count, channels)),
        lambda i, s, p, k: _row(i, matrix, lambda r: product[(r * size + s, *(0 for _ in single), p, k)]),
        name="down",
    )
    across = te.compute(
        int64_sizes(conv.out_shape),
        lambda b, y, x, k: _row(
            x % m, matrix, lambda s: down[y % m, s, (b * high + y // m) * wide + x // m, k]
        ),
        name="across",
    )
    return _prim_func([product, across])


def _join(tiles: tirx.PrimFunc, func: tirx.PrimFunc, conv: DirectConv) -> tirx.PrimFunc:
    """Return the unscheduled output transform and the epilogue of the convolution as one kernel."""
    if not conv.epilogue:
        return tiles
    kept = [func.params[i] for i in kept_arguments(func, conv)]
    read = _read_by(conv.epilogue) - {conv.result.__chandle__()}
    buffers = [buffer for buffer in func.body.block.alloc_buffers if buffer.__chandle__() in read]
    body = tirx.SeqStmt(list(conv.epilogue)) if len(conv.epilogue) > 1 else conv.epilogue[0]
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=buffers)
    after = tirx.PrimFunc([conv.result, *kept], s_tir.SBlockRealize([], True, block))
    after = after.with_attr("tirx.noalias", True)
    builder = relax.BlockBuilder()
    first = builder.add_func(tiles.without_attr("global_symbol"), "tiles")
    second = builder.add_func(after, "after")
    inputs = [_tensor(tiles.params[0], "product")]
    inputs += [_tensor(param, f"kept{i}") for i, param in enumerate(kept[:-1])]

    def emit() -> Any:
        tiled = builder.emit(relax.call_tir(first, inputs[:1], out_ty=_tensor(conv.result).ty))
        return relax.call_tir(second, [tiled, *inputs[1:]], out_ty=_tensor(kept[-1]).ty)

    return fused_kernel(builder, inputs, emit)


def _schedule_output(func: tirx.PrimFunc, conv: DirectConv, m: int) -> tirx.PrimFunc | None:
    schedule = schedule_of(func)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    stages, last = blocks[:2], blocks[-1]
    extents = tuple(int(schedule.get(loop).extent) for loop in schedule.get_loops(last))
    if extents[:-1] != conv.out_shape[:-1] or extents[-1] > conv.out_shape[-1]:
        return None  # fewer channels are left where ragged ones are cropped
    for block in blocks[2:-1]:
        schedule.compute_inline(block)
    if len(blocks) == 2:
        stages = blocks[:1]
    image, y, x, channel = schedule.get_loops(last)
    rows, i = schedule.split(y, [None, m])
    columns, j = schedule.split(x, [None, m])
    outer, vector = schedule.split(channel, [None, _vector(extents[-1])])
    schedule.reorder(image, rows, columns, outer, i, j, vector)
    schedule.parallel(schedule.fuse(image, rows))
    for stage in reversed(stages):
        schedule.compute_at(stage, outer)
    for block in (*stages, last):
        _flatten(schedule, block, 3)
    return _done(schedule)


def _row(index: Any, matrix: Matrix, term: Callable[[int], Any]) -> Any:
    """Return the product of terms and the matrix's row with this index, which is constant in unrolled loops."""
    sums = [_combine(row, term) for row in matrix]
    chosen = sums[-1]
    for number in reversed(range(len(sums) - 1)):
        chosen = tirx.Select(index == number, sums[number], chosen)
    return chosen


def _combine(row: Sequence[float], term: Callable[[int], Any]) -> Any:
    total: Any = None
    for number, factor in enumerate(row):
        if factor == 0:
            continue
        size = term(number) if abs(factor) == 1 else term(number) * tirx.const(abs(float(factor)), "float32")
        if total is None:
            total = size if factor > 0 else tirx.const(0, "float32") - size
        else:
            total = total + size if factor > 0 else total - size
    return total


def _flatten(schedule: s_tir.Schedule, block: Any, outside: int) -> None:
    """Unroll a block's loops inside the outermost few, and vectorise the innermost."""
    inner = schedule.get_loops(block)[outside:]
    for loop in inner[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(inner[-1])


def _read_by(statements: Sequence[Any]) -> set[int]:
    """Return the addresses of all variables and buffers in statements."""
    return {
        node.__chandle__()
        for statement in statements
        for node in walk(statement)
        if isinstance(node, tvm.ir.Var)
    }


def _vector(channels: int) -> int:
    return next((elements for elements in _VECTORS if channels % elements == 0), 1)


def _single(lanes: int) -> tuple[int, ...]:
    """Return the dimensions between a product's number and its rows: `batch_sums` has one of a single element."""
    return (1,) if lanes else ()


def _placeholder(shape: Sequence[int], name: str, dtype: str = "float32") -> Any:
    return te.placeholder(int64_sizes(shape), dtype, name=name)


def _prim_func(tensors: Sequence[Any]) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors), index_dtype_override="int64").with_attr("tirx.noalias", True)


def _tensor(param: Any, name: str = "t") -> Any:
    shape = [int(dim) for dim in param.ty.shape]
    return relax.Var(name, relax.TensorType(shape, str(param.ty.dtype.dtype)))


def _done(schedule: s_tir.Schedule) -> tirx.PrimFunc:
    return schedule.mod["main"].without_attr("global_symbol").with_attr(IS_SCHEDULED, True)
