"""Channels that no whole vector divides, in default schedules: half vectors are computed in pairs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule

AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=1")
AVX2 = parse_target("llvm -mcpu=haswell -num-cores=1")
HOST = parse_target("host")


def convolution(channels: int, *, results: int, target: Any) -> Any:
    """Return the scheduled kernel of a convolution of 3x3 with channels last and a step behind it."""
    x = te.placeholder(int64_sizes((1, 14, 18, channels)), name="x")
    w = te.placeholder(int64_sizes((3, 3, channels, results)), name="w")
    bias = te.placeholder(int64_sizes((results,)), name="bias")
    y = topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 0, 1) + bias)
    return default_schedule(te.create_prim_func([x, w, bias, y], index_dtype_override="int64"), target)


def vector_lengths(func: Any) -> set[int]:
    return {int(length) for length in re.findall(r"T\.vectorized\(T\.int64\((\d+)\)\)", func.script())}


@pytest.mark.parametrize(
    ("results", "target", "lengths"),
    [
        (24, AVX512, {16, 8}),
        (40, AVX512, {16, 8}),
        (12, AVX2, {8, 4}),
        (16, AVX512, {16}),
        (8, AVX512, {8}),
        (12, AVX512, {4}),
    ],
)
def test_half_vectors_are_joined_in_pairs(results: int, target: Any, lengths: set[int]) -> None:
    assert vector_lengths(convolution(16, results=results, target=target)) == lengths


@pytest.mark.parametrize("results", [24, 40, 56, 72, 88])
def test_joined_vectors_compute_what_others_do(results: int) -> None:
    func = convolution(5, results=results, target=HOST).with_attr("global_symbol", "main")
    kernel = tvm.tirx.build(tvm.IRModule({"main": func}), target=tvm_target(HOST))
    rng = np.random.default_rng(0)
    shapes = ((1, 14, 18, 5), (3, 3, 5, results), (results,))
    x, w, bias = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    result = tvm.runtime.empty((1, 12, 16, results), "float32")
    kernel(*map(tvm.runtime.tensor, (x, w, bias)), result)
    taps = ((row, column) for row in range(3) for column in range(3))
    wide = x.astype(np.float64)
    sums = sum(wide[:, row : row + 12, column : column + 16] @ w[row, column] for row, column in taps)
    np.testing.assert_allclose(result.numpy(), np.maximum(sums + bias, 0), rtol=1e-4, atol=1e-4)


def test_a_depthwise_convolution_of_24_channels_joins_its_vectors() -> None:
    x = te.placeholder(int64_sizes((1, 16, 16, 24)), name="x")
    w = te.placeholder(int64_sizes((3, 3, 24, 1)), name="w")
    y = topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)
    assert {16, 8} <= vector_lengths(
        default_schedule(te.create_prim_func([x, w, y], index_dtype_override="int64"), AVX512)
    )
