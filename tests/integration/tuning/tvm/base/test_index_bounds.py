"""Bounds of indices that kernels compute of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi

from tunefarm_tuning.tvm.base.index_bounds import bound_computed_indices


def bounded(*tensors: Any) -> tuple[tvm.IRModule, tvm.IRModule]:
    mod = tvm.IRModule({"main": te.create_prim_func(list(tensors))})
    return mod, bound_computed_indices(mod)


def run(mod: tvm.IRModule, *arrays: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = tvm.runtime.tensor(np.zeros(shape, np.float32))
    tvm.compile(mod, target="llvm")(*[tvm.runtime.tensor(array) for array in arrays], out)
    result: np.ndarray = out.numpy()
    return result


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
def test_an_index_is_the_nearest_that_the_tensor_has(dtype: str) -> None:
    table, indices = te.placeholder((5, 3), name="table"), te.placeholder((6,), dtype, name="indices")
    _, mod = bounded(table, indices, topi.take(table, indices, axis=0, mode="fast"))
    ends = np.iinfo(dtype)
    values = np.array([0, 4, 5, 77, ends.max, ends.min], dtype)
    data = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(run(mod, data, values, shape=(6, 3)), data[[0, 4, 4, 4, 4, 0]])


def test_sizes_that_are_not_known_bound_an_index_too() -> None:
    rows = tirx.Var("rows", "int64")
    table, indices = te.placeholder((rows, 3), name="table"), te.placeholder((2,), "int32", name="indices")
    _, mod = bounded(table, indices, topi.take(table, indices, axis=0, mode="fast"))
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    taken = run(mod, data, np.array([1 << 30, -(1 << 30)], np.int32), shape=(2, 3))
    np.testing.assert_array_equal(taken, data[[3, 0]])


def test_an_index_that_is_within_its_tensor_has_no_bound() -> None:
    """Neither by its type, nor where the kernel bounds it, nor where it is none of elements."""
    table = te.placeholder((256, 3), name="table")
    letters = te.placeholder((6,), "uint8", name="letters")
    numbers = te.placeholder((6,), "int64", name="numbers")
    for output in (
        topi.take(table, letters, axis=0, mode="fast"),
        topi.take(table, numbers, axis=0, mode="clip"),
        topi.transpose(table),
    ):
        mod, same = bounded(table, letters, numbers, output)
        assert same.same_as(mod)


def test_an_index_that_the_kernel_checks_has_no_bound() -> None:
    table, numbers = te.placeholder((8,), name="table"), te.placeholder((6,), "int64", name="numbers")

    def checked(i: Any) -> Any:
        next_one = numbers[i] + 1
        return tirx.if_then_else(tirx.all(numbers[i] >= -1, numbers[i] < 7), table[next_one], tirx.const(0.0))

    mod, same = bounded(table, numbers, te.compute((6,), checked))
    assert same.same_as(mod)


def test_an_index_that_the_kernel_checks_in_part_is_bounded() -> None:
    table, numbers = te.placeholder((8,), name="table"), te.placeholder((3,), "int64", name="numbers")

    def checked(i: Any) -> Any:
        return tirx.if_then_else(numbers[i] >= 0, table[numbers[i]], tirx.const(-1.0))

    _, mod = bounded(table, numbers, te.compute((3,), checked))
    taken = run(mod, np.arange(8, dtype=np.float32), np.array([-5, 3, 1 << 40]), shape=(3,))
    np.testing.assert_array_equal(taken, [-1, 3, 7])


def test_what_is_bounded_stays_as_it_is() -> None:
    data = te.placeholder((5, 3), name="data")
    points, updates = te.placeholder((4, 1), "int64", name="points"), te.placeholder((4, 3), name="updates")
    _, mod = bounded(data, points, updates, topi.scatter_nd(data, topi.transpose(points), updates, "add"))
    assert tvm_ffi.structural_equal(bound_computed_indices(mod), mod)
