"""Rows and columns of an image become one loop where a product reads them as one and tiles then fit better, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule

AVX2 = parse_target("llvm -mcpu=haswell -num-cores=2")
AVX512 = parse_target("llvm -mcpu=cascadelake -num-cores=2")
Tensors = list[Any]


def conv(size: int, channels: int, *, kernel: int = 1, stride: int = 1, batch: int = 1) -> Tensors:
    x = te.placeholder(int64_sizes((batch, size, size, 64)), name="x")
    weights = te.placeholder(int64_sizes((kernel, kernel, 64, channels)), name="weights")
    pad = kernel // 2
    return [
        x,
        weights,
        topi.nn.conv2d(x, weights, stride, pad, 1, data_layout="NHWC", kernel_layout="HWIO"),
    ]


def with_residual(tensors: Tensors) -> Tensors:
    *inputs, sums = tensors
    bias = te.placeholder(int64_sizes((1, 1, 1, int(sums.shape[-1]))), name="bias")
    rest = te.placeholder(sums.shape, name="rest")
    return [*inputs, bias, rest, topi.nn.relu(topi.add(topi.add(sums, bias), rest))]


def transposed(tensors: Tensors) -> Tensors:
    *inputs, sums = tensors
    return [*inputs, topi.transpose(sums, (0, 2, 1, 3))]


def cropped(tensors: Tensors) -> Tensors:
    *inputs, sums = tensors
    end = [int(size) - 1 for size in sums.shape[1:3]]
    return [*inputs, topi.strided_slice(sums, [0, 0], end, [1, 1], [1, 2])]


def of_batches(rows: int) -> Tensors:
    x = te.placeholder(int64_sizes((7, rows, 64)), name="x")
    weights = te.placeholder(int64_sizes((64, 48)), name="weights")
    return [x, weights, topi.nn.matmul(x, weights)]


def merged(tensors: Tensors, target: Any = AVX2) -> bool:
    """Return whether the tensor of results lost a dimension."""
    func = te.create_prim_func(tensors, index_dtype_override="int64")
    (local,) = [line for line in default_schedule(func, target).script().splitlines() if '"local"' in line]
    return local.count("T.int64") == len(tensors[-1].shape) - 1


MERGED: dict[str, Callable[[], Tensors]] = {
    "1x1": lambda: conv(7, 48),
    "1x1, residual": lambda: with_residual(conv(7, 80)),
    "1x1, images": lambda: conv(7, 48, batch=3),
    "1x1, ragged channels": lambda: with_residual(conv(7, 77)),
    "products": lambda: of_batches(7),
}
APART: dict[str, Callable[[], Tensors]] = {
    "3x3": lambda: conv(7, 48, kernel=3),
    "stride": lambda: conv(14, 48, stride=2),
    "transposed behind": lambda: transposed(conv(7, 48)),
    "cropped behind": lambda: cropped(conv(7, 48)),
}


@pytest.mark.parametrize("name", MERGED)
def test_loops_that_memory_holds_as_one_are_merged(name: str) -> None:
    assert merged(MERGED[name]())
    assert not merged(MERGED[name](), AVX512), "its tiles are for more registers"


@pytest.mark.parametrize("name", APART)
def test_others_are_not(name: str) -> None:
    assert not merged(APART[name]())


def test_tiles_that_divide_both_loops_stay() -> None:
    assert not merged(conv(12, 48))


@pytest.mark.parametrize("name", [*MERGED, *APART])
def test_results_are_the_same(name: str) -> None:
    tensors = (MERGED | APART)[name]()
    func = te.create_prim_func(tensors, index_dtype_override="int64")
    rng = np.random.default_rng(3)
    values = [rng.normal(size=[int(size) for size in x.shape]).astype(np.float32) for x in tensors[:-1]]
    results = []
    for kernel in (func, default_schedule(func, AVX2)):
        with tvm_target(AVX2), tvm.transform.PassContext(config=SPLIT_TAILS):
            module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
            built = tvm.tirx.build(module, target=tvm_target(AVX2))
        arguments = [tvm.runtime.tensor(x) for x in values]
        result = tvm.runtime.empty([int(size) for size in tensors[-1].shape], "float32")
        built["main"](*arguments, result)
        results.append(result.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)
