"""Products of large inputs with large weights: blocks of rows serve all columns from the cache before the next rows are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes, walk
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.kernels.weight_packing import pack, with_weights

AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=2")
HOST = parse_target("host")


def convolution(size: int, inputs: int, outputs: int) -> Any:
    x = te.placeholder(int64_sizes((1, size, size, inputs)), name="x")
    weights = te.placeholder(int64_sizes((1, 1, inputs, outputs)), name="weights")
    y = topi.nn.relu(topi.nn.conv2d(x, weights, 1, 0, 1, data_layout="NHWC", kernel_layout="HWIO"))
    return with_weights(te.create_prim_func([x, weights, y], index_dtype_override="int64"), [1])


def product(rows: int, inner: int, columns: int) -> Any:
    a = te.placeholder(int64_sizes((rows, inner)), name="a")
    b = te.placeholder(int64_sizes((inner, columns)), name="b")
    sums = topi.nn.matmul(a, b)
    return with_weights(te.create_prim_func([a, b, sums], index_dtype_override="int64"), [1])


@pytest.mark.parametrize(
    ("func", "row", "column", "is_blocked"),
    [
        (convolution(128, 1024, 256), "yy", "ff", True),
        (convolution(14, 1024, 256), "yy", "ff", False),  # the second cache holds the input
        (product(16384, 1024, 256), "i0", "i1", True),
        (product(197, 768, 2304), "i0", "i1", False),  # the weights are larger
    ],
)
def test_rows_come_before_columns_where_the_input_is_large(
    func: Any, row: str, column: str, is_blocked: bool
) -> None:
    scheduled = packed_default_schedule(func, AVX512).func
    loops = [str(node.loop_var.name) for node in walk(scheduled.body) if isinstance(node, tvm.tirx.For)]
    names = "".join(f"{name}_" for name in loops if "init" not in name and "ax" not in name)
    assert (names.index(row) < names.index(column)) == is_blocked, names


@pytest.mark.parametrize(
    ("func", "cores", "blocks"),
    [
        (
            convolution(28, 736, 512),
            1,
            14,
        ),  # of 24 columns: the last tile has 8, so that threads cannot share columns, too
        (convolution(28, 512, 736), 1, 7),
        (convolution(28, 512, 736), 2, 14),  # of 7 blocks, one core would have four
        (convolution(28, 512, 736), 7, 7),
        (convolution(7, 128, 512), 1, 7),  # the rows of small weights
        (convolution(7, 128, 512), 2, 22),  # the columns: of 7 rows, one core would have four
    ],
)
def test_cores_have_equal_shares(func: Any, cores: int, blocks: int) -> None:
    scheduled = packed_default_schedule(func, parse_target(f"llvm -mcpu=znver2 -num-cores={cores}")).func
    (extent,) = (
        int(node.extent)
        for node in walk(scheduled.body)
        if isinstance(node, tvm.tirx.For) and node.kind == tvm.tirx.ForKind.PARALLEL
    )
    assert extent == blocks


def test_neighbouring_rows_follow_each_other_where_weights_are_small() -> None:
    scheduled = packed_default_schedule(convolution(56, 64, 64), AVX512).func
    loops = [str(node.loop_var.name) for node in walk(scheduled.body) if isinstance(node, tvm.tirx.For)]
    assert not [name for name in loops if "yy_0_1" in name]


def test_a_product_of_one_pixel_is_shared_by_threads() -> None:
    scheduled = packed_default_schedule(
        convolution(1, 960, 1280), parse_target("llvm -mcpu=znver2 -num-cores=2")
    )
    assert [
        int(node.extent)
        for node in walk(scheduled.func.body)
        if isinstance(node, tvm.tirx.For) and node.kind == tvm.tirx.ForKind.PARALLEL
    ] == [16]


@pytest.mark.parametrize(
    ("rows", "columns", "cpu", "panel"),
    [
        (1, 1280, "znver2", 16),  # a cache line of each of five panels
        (1, 1000, "znver2", 8),  # of tiles of 40 columns, which lines do not divide
        (2, 1280, "znver2", 8),  # one tile has both rows
        (64, 1200, "znver2", 24),  # tiles read a panel again and again
        (1, 1280, "skylake-avx512", 128),
    ],
)
def test_weights_that_are_read_once_lie_in_narrow_panels(
    rows: int, columns: int, cpu: str, panel: int
) -> None:
    packed = packed_default_schedule(
        product(rows, 960, columns), parse_target(f"llvm -mcpu={cpu} -num-cores=2")
    )
    (packing,) = packed.packings.values()
    assert pack(np.zeros((960, columns), np.float32), packing).shape[-1] == panel


@pytest.mark.parametrize(("rows", "inner", "columns"), [(2048, 512, 192), (4096, 300, 320)])
def test_a_product_by_blocks_is_right(rows: int, inner: int, columns: int) -> None:
    packed = packed_default_schedule(product(rows, inner, columns), HOST)
    with tvm.transform.PassContext(config=SPLIT_TAILS):
        kernel = tvm.tirx.build(
            tvm.IRModule({"main": packed.func.with_attr("global_symbol", "main")}), target=tvm_target(HOST)
        )
    rng = np.random.default_rng(0)
    a = rng.normal(size=(rows, inner)).astype(np.float32)
    b = rng.normal(size=(inner, columns)).astype(np.float32)
    (packing,) = packed.packings.values()
    result = tvm.runtime.empty((rows, columns), "float32")
    kernel(
        tvm.runtime.tensor(a),
        tvm.runtime.tensor(pack(b, packing)),
        result,
    )
    np.testing.assert_allclose(result.numpy(), a @ b, rtol=1e-4, atol=1e-3)
