"""Reductions of rows in default schedules: rows that only short vectors fit are computed by long ones, with a tail."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from scipy.special import softmax
from tvm import te, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule

AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=1")
HOST = parse_target("host")


def built(func: Any) -> Any:
    """Return a scheduled kernel as networks have it."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with tvm.transform.PassContext(config=SPLIT_TAILS):
        return tvm.tirx.build(module, target=tvm_target(HOST))


def softmax_kernel(columns: int, target: Any) -> Any:
    x = te.placeholder(int64_sizes((50, columns)), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x, axis=-1)], index_dtype_override="int64")
    return default_schedule(func, target)


def longest_vector(func: Any) -> int:
    return max(int(length) for length in re.findall(r"T\.vectorized\(T\.int64\((\d+)\)\)", func.script()))


@pytest.mark.parametrize(
    ("columns", "lanes"), [(192, 16), (196, 16), (200, 16), (100, 16), (1500, 16), (36, 4), (40, 8)]
)
def test_long_rows_are_reduced_in_whole_vectors(columns: int, lanes: int) -> None:
    assert longest_vector(softmax_kernel(columns, AVX512)) == lanes


@pytest.mark.parametrize("columns", [36, 40, 64, 65, 68, 100, 196, 197, 204, 1500])
def test_a_softmax_of_ragged_rows_is_right(columns: int) -> None:
    kernel = built(softmax_kernel(columns, HOST))
    x = (10 * np.random.default_rng(0).normal(size=(50, columns))).astype(np.float32)
    result = tvm.runtime.empty(x.shape, "float32")
    kernel(tvm.runtime.tensor(x), result)
    np.testing.assert_allclose(result.numpy(), softmax(x.astype(np.float64), axis=-1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("columns", [68, 100, 196])
def test_a_normalisation_of_ragged_rows_is_right(columns: int) -> None:
    x = te.placeholder(int64_sizes((50, columns)), name="x")
    scale, shift = (te.placeholder(int64_sizes((columns,)), name=name) for name in ("scale", "shift"))
    y = topi.nn.layer_norm(x, scale, shift, [1], 1e-5)
    func = default_schedule(te.create_prim_func([x, scale, shift, y], index_dtype_override="int64"), HOST)
    kernel = built(func)
    rng = np.random.default_rng(0)
    values, factors, offsets = (
        rng.normal(size=shape).astype(np.float32) for shape in ((50, columns), columns, columns)
    )
    result = tvm.runtime.empty(values.shape, "float32")
    kernel(*map(tvm.runtime.tensor, (values, factors, offsets)), result)
    wide = values.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result.numpy(), normal * factors + offsets, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "lanes"), [((1, 128, 192), 64), ((1, 3, 48), 16), ((5, 40), 8)])
@pytest.mark.parametrize("operator", [topi.max, topi.min, topi.sum])
def test_all_elements_are_reduced_to_one_in_vectors(
    operator: Any, shape: tuple[int, ...], lanes: int
) -> None:
    x = te.placeholder(int64_sizes(shape), name="x")
    func = te.create_prim_func([x, operator(x)], index_dtype_override="int64")
    assert longest_vector(default_schedule(func, AVX512)) == lanes
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    result = tvm.runtime.empty((), "float32")
    built(default_schedule(func, HOST))(tvm.runtime.tensor(values), result)
    wanted = {topi.max: np.max, topi.min: np.min, topi.sum: np.sum}[operator](values.astype(np.float64))
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_number_can_be_computed_from_one_that_all_elements_are_reduced_to() -> None:
    x = te.placeholder(int64_sizes((12, 64)), name="x")
    scale = topi.divide(topi.max(x), np.float32(127))
    func = default_schedule(te.create_prim_func([x, scale], index_dtype_override="int64"), HOST)
    assert longest_vector(func) >= 16
    values = np.random.default_rng(0).normal(size=(12, 64)).astype(np.float32)
    result = tvm.runtime.empty((), "float32")
    built(func)(tvm.runtime.tensor(values), result)
    np.testing.assert_allclose(result.numpy(), values.max() / 127, rtol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1, 288, 12, 32), (2, 3)), ((2, 128, 768), (2,)), ((3, 5, 64, 64), (3,)), ((1, 96, 68), (2,))],
)
def test_a_mean_of_each_row_is_computed_in_short_vectors(
    shape: tuple[int, ...], axes: tuple[int, ...], *, transposed: bool
) -> None:
    """As a vector of all rows at once, 864 of them took LLVM two minutes."""
    x = te.placeholder(int64_sizes(shape), name="x")
    mean = topi.multiply(topi.sum(x, axis=axes), np.float32(1 / np.prod([shape[axis] for axis in axes])))
    if transposed:  # the stages share the outer loop alone
        mean = topi.transpose(mean, [0, *range(len(mean.shape) - 1, 0, -1)])
    func = te.create_prim_func([x, mean], index_dtype_override="int64")
    assert longest_vector(default_schedule(func, AVX512)) <= 16
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    wanted = values.astype(np.float64).mean(axis=axes)
    if transposed:
        wanted = wanted.transpose(0, *range(wanted.ndim - 1, 0, -1))
    result = tvm.runtime.empty(wanted.shape, "float32")
    built(default_schedule(func, HOST))(tvm.runtime.tensor(values), result)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-6)
