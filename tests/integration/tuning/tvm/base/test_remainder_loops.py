"""Loops over remainders compute what they say: LLVM 22 vectorises some of them wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tunefarm_tuning.target.dot_products import is_arm64
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.tvm.base.remainder_loops import without_remainder_loops
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import schedule_of

ROWS = 5
CPUS = ("llvm -mcpu=x86-64", "llvm -mcpu=haswell")


def repeated(extent: int, period: int, shift: int = 0, *, parallel: bool = False) -> Any:
    """Return a kernel of rows that adds up elements of a short row, again and again, and those of a row of their periods."""
    x = te.placeholder((ROWS, period), "float32", name="x")
    y = te.placeholder((ROWS, extent // period + 2), "float32", name="y")
    result = te.compute(
        (ROWS, extent),
        lambda row, i: x[row, (i + shift) % period] + y[row, (i + shift) // period],
        name="result",
    )
    schedule = schedule_of(te.create_prim_func([x, y, result], index_dtype_override="int64"))
    if parallel:
        schedule.parallel(schedule.fuse(*schedule.get_loops(schedule.get_sblock("result"))))
    return schedule.mod["main"].with_attr("tirx.noalias", True)


def run(func: Any, target: str, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    built = tvm.tirx.build(tvm.IRModule({"main": func}), tvm_target(parse_target(target)))
    result = tvm.runtime.tensor(np.zeros([int(size) for size in func.params[-1].ty.shape], np.float32))
    built["main"](*map(tvm.runtime.tensor, arrays), result)
    return np.asarray(result.numpy())


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.skipif(is_arm64(detect_host_target()), reason="these are CPUs of x86")
@pytest.mark.parametrize("target", CPUS)
@pytest.mark.parametrize(
    ("extent", "period", "shift"),
    [(64, 8, 0), (64, 4, 0), (128, 16, 0), (96, 6, 0), (61, 8, 0), (64, 8, 3), (64, 2, 0), (40, 7, 2)],
)
@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
def test_elements_come_again_in_each_period(
    target: str, extent: int, period: int, shift: int, parallel: bool
) -> None:
    """Of 64 elements with a period of 8, LLVM's vectors read 48 from behind the row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, period)).astype(np.float32)
    y = rng.normal(size=(ROWS, extent // period + 2)).astype(np.float32)
    numbers = np.arange(extent) + shift
    expected = x[:, numbers % period] + y[:, numbers // period]
    actual = run(repeated(extent, period, shift, parallel=parallel), target, [x, y])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.skipif(is_arm64(detect_host_target()), reason="these are CPUs of x86")
@pytest.mark.parametrize("target", [*CPUS, "llvm -mcpu=skylake"])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_positions_relative_to_rows_and_columns_are_added(target: str, size: int) -> None:
    """As in the attention of Segment Anything: vectors read what lies behind the columns' row."""
    heads = 4
    shape = (heads, size * size, size)
    scores = te.placeholder((heads, size * size, size * size), "float32", name="scores")
    rows, columns = (te.placeholder(shape, "float32", name=name) for name in ("rows", "columns"))
    result = te.compute(
        scores.shape,
        lambda h, q, k: scores[h, q, k] + (rows[h, q, k // size] + columns[h, q, k % size]),
        name="result",
    )
    func = te.create_prim_func([scores, rows, columns, result], index_dtype_override="int64")
    rng = np.random.default_rng(0)
    given = rng.normal(size=(heads, size * size, size * size)).astype(np.float32)
    of_rows, of_columns = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    both = (of_rows[..., :, None] + of_columns[..., None, :]).reshape(given.shape)
    actual = run(func.with_attr("tirx.noalias", True), target, [given, of_rows, of_columns])
    np.testing.assert_array_equal(actual, given + both)


def test_whole_periods_become_a_loop_of_their_own() -> None:
    code = str(
        tvm.tirx.build(
            tvm.IRModule({"main": repeated(64, 8)}), tvm_target(parse_target("llvm -mcpu=haswell"))
        ).inspect_source("asm")
    )
    assert "vaddps" in code, "without a remainder LLVM makes vectors again"


def test_other_kernels_stay_as_they_are() -> None:
    x = te.placeholder((64,), "float32", name="x")
    result = te.compute((64,), lambda i: x[i] + x[i // 8], name="result")
    func = te.create_prim_func([x, result], index_dtype_override="int64")
    assert without_remainder_loops(func).same_as(func)
