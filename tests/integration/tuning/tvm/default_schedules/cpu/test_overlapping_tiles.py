"""Products whose results no vector divides, in default schedules: the last tile of a row overlaps the one before it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes, schedule_of
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.cpu.overlapping_tiles import (
    TilesDoNotOverlap,
    overlap_tiles,
    shift_last_tiles,
)
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.default_schedules.stage import Machine

AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=1")
AVX2 = parse_target("llvm -mcpu=haswell -num-cores=1")
NEON = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=1")
HOST = parse_target("host")


def product(rows: int, inner: int, columns: int, *, adds: bool, batch: int = 3) -> tvm.tirx.PrimFunc:
    """Return products of matrices, as an attention has them; with a step behind them if it `adds`."""
    a = te.placeholder(int64_sizes((batch, rows, inner)), name="a")
    b = te.placeholder(int64_sizes((batch, inner, columns)), name="b")
    sums = topi.nn.batch_matmul(a, b, transpose_b=False)
    if not adds:
        return te.create_prim_func([a, b, sums], index_dtype_override="int64")
    c = te.placeholder(int64_sizes((batch, rows, columns)), name="c")
    return te.create_prim_func([a, b, c, topi.add(sums, c)], index_dtype_override="int64")


def built(func: Any) -> Any:
    """Return a scheduled kernel as networks have it."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(config=SPLIT_TAILS):
        return tvm.tirx.build(module, target=tvm_target(HOST))


def vector_lengths(func: Any) -> set[int]:
    return {int(length) for length in re.findall(r"T\.vectorized\(T\.int64\((\d+)\)\)", func.script())}


@pytest.mark.parametrize(
    ("columns", "target", "lengths"),
    [
        (196, AVX512, {16}),
        (1500, AVX512, {16}),
        (20, AVX512, {16}),
        (200, AVX512, {16}),
        (192, AVX512, {16}),
        (12, AVX512, {4}),
        (100, AVX2, {8}),
        (197, NEON, {4}),
    ],
)
def test_products_use_whole_vectors(columns: int, target: Any, lengths: set[int]) -> None:
    func = default_schedule(product(50, 32, columns, adds=True), target)
    assert vector_lengths(func) == lengths
    assert ("T.min(" in func.script()) == bool(columns % max(lengths)), "of no tile a part is left"


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON])
def test_tiles_of_many_rows_share_a_copy_of_their_columns(target: Any) -> None:
    """As they lie, the columns of a tile are in as many pages as the matrix has rows."""
    copies = default_schedule(product(300, 64, 1500, adds=False), target).script()
    assert "b_global = T.sblock_alloc_buffer(" in copies
    assert "b_global" not in default_schedule(product(12, 64, 1500, adds=False), target).script()
    assert "b_global" not in default_schedule(product(300, 64, 300, adds=False), target).script()


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (48, 1500),
        (40, 512),
        (196, 196),
        (197, 197),
        (1, 196),
        (7, 20),
        (33, 18),
        (64, 100),
        (196, 31),
        (5, 17),
        (48, 257),
        (9, 16),
    ],
)
def test_overlapping_tiles_compute_what_others_do(rows: int, columns: int, *, adds: bool) -> None:
    inner = 70 if columns > 500 else 24
    kernel = built(default_schedule(product(rows, inner, columns, adds=adds), HOST))
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.normal(size=shape).astype(np.float32)
        for shape in ((3, rows, inner), (3, inner, columns), (3, rows, columns))
    )
    guarded = np.full((3 * rows * columns + 64,), 7.0, "float32")
    result = tvm.runtime.tensor(guarded)
    view = result._create_view((3, rows, columns), "float32")
    kernel(*map(tvm.runtime.tensor, (a, b, c)[: 2 + adds]), view)
    expected = a.astype(np.float64) @ b + (c if adds else 0)
    np.testing.assert_allclose(view.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(result.numpy()[3 * rows * columns :], 7.0, "behind the last row")


@pytest.mark.parametrize("columns", [150, 146, 37])
def test_a_crop_behind_a_product_is_right(columns: int) -> None:
    padded = columns + -columns % 8
    a, b = (
        te.placeholder(int64_sizes((60, 24)), name="a"),
        te.placeholder(int64_sizes((24, padded)), name="b"),
    )
    sums = topi.nn.matmul(a, b)
    crop = te.compute(int64_sizes((60, columns)), lambda i, j: sums[i, j] + 1.0, name="crop")
    func = default_schedule(te.create_prim_func([a, b, crop], index_dtype_override="int64"), HOST)
    kernel = built(func)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((60, 24), (24, padded)))
    result = tvm.runtime.empty((60, columns), "float32")
    kernel(*map(tvm.runtime.tensor, (x, y)), result)
    expected = (x.astype(np.float64) @ y + 1)[:, :columns]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("rows", [60, 196, 197])
@pytest.mark.parametrize("form", ["transposed", "reshaped", "split"])
def test_steps_that_go_through_results_in_another_way_are_right(form: str, rows: int) -> None:
    a, b = te.placeholder(int64_sizes((rows, 24)), name="a"), te.placeholder(int64_sizes((24, 196)), name="b")
    sums = topi.nn.matmul(a, b)
    shape = {"transposed": (196, rows), "reshaped": (rows, 14, 14), "split": (rows, 7, 28)}[form]
    moved = topi.transpose(sums, (1, 0)) if form == "transposed" else topi.reshape(sums, int64_sizes(shape))
    func = te.create_prim_func([a, b, topi.nn.relu(moved)], index_dtype_override="int64")
    scheduled = default_schedule(func, HOST)
    assert vector_lengths(scheduled)
    kernel = built(scheduled)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=size).astype(np.float32) for size in ((rows, 24), (24, 196)))
    result = tvm.runtime.empty(shape, "float32")
    kernel(*map(tvm.runtime.tensor, (x, y)), result)
    product = np.maximum(x.astype(np.float64) @ y, 0)
    expected = product.T if form == "transposed" else product.reshape(shape)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "order", "shape"),
    [
        ((49, 24, 18), (0, 1), (14, 63)),
        ((60, 65, 36), (1, 0), (9, 16, 15)),
        ((7, 2, 72), (0, 1), (21, 24)),
        ((50, 24, 60), (0, 1), (50, 5, 12)),
        ((2, 24, 98), (0, 1), (49, 2, 2)),
    ],
)
def test_steps_that_join_and_part_dimensions_are_right(
    sizes: tuple[int, int, int], order: tuple[int, int], shape: tuple[int, ...]
) -> None:
    rows, inner, columns = sizes
    a, b = (
        te.placeholder(int64_sizes((rows, inner)), name="a"),
        te.placeholder(int64_sizes((inner, columns)), name="b"),
    )
    moved = topi.reshape(topi.transpose(topi.nn.matmul(a, b), order), int64_sizes(shape))
    kernel = built(default_schedule(te.create_prim_func([a, b, moved], index_dtype_override="int64"), HOST))
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=size).astype(np.float32) for size in ((rows, inner), (inner, columns)))
    result = tvm.runtime.empty(shape, "float32")
    kernel(*map(tvm.runtime.tensor, (x, y)), result)
    expected = (x.astype(np.float64) @ y).transpose(order).reshape(shape)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_sizes_that_the_run_knows_do_not_overlap() -> None:
    rows = tvm.tirx.Var("rows", "int64")
    columns = tvm.tirx.Var("columns", "int64")
    a = te.placeholder((rows, *int64_sizes((32,))), name="a")
    b = te.placeholder((*int64_sizes((32,)), columns), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)], index_dtype_override="int64")
    assert "overlapping" not in default_schedule(func, AVX512).script()


def test_a_block_that_nothing_cuts_is_refused() -> None:
    sch = schedule_of(product(8, 8, 32, adds=False).with_attr("global_symbol", "main"))
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    loop = sch.get_loops(block)[2]
    sch.reorder(sch.get_loops(block)[3], loop)
    _, lanes = sch.split(loop, [None, 16])
    sch.reorder(lanes)
    sch.vectorize(lanes)
    overlap_tiles(sch, [block], 32, 16)
    with pytest.raises(TilesDoNotOverlap, match="does not go through its row by tiles"):
        shift_last_tiles(sch.mod["main"], Machine.of(AVX512))
