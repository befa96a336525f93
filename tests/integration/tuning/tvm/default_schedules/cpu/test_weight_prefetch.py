"""A product prefetches the weights of the next tiles of channels: each line of them once while the last ones are multiplied."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule, packed_default_schedule
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d
from tunefarm_tuning.tvm.kernels.weight_packing import with_weights

ZEN4 = parse_target("llvm -mcpu=znver4 -num-cores=2")
ARM = parse_target("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu")
LINE = 64


def of_bfloat16(size: int, channels: int) -> Any:
    x = te.placeholder((1, size, size, channels), "bfloat16", name="x")
    weights = te.placeholder((channels // 16, 3, 3, channels // 2, 32), "bfloat16", name="weights")
    sums = bfloat16_conv2d(x, weights, channels=channels, strides=(1, 1), padding=(1,) * 4, dilation=(1, 1))
    return te.create_prim_func([x, weights, sums], index_dtype_override="int64")


def of_float32(size: int, channels: int) -> Any:
    x = te.placeholder((1, size, size, channels), "float32", name="x")
    weights = te.placeholder((3, 3, channels, channels), "float32", name="weights")
    sums = topi.nn.conv2d(x, weights, 1, 1, 1, data_layout="NHWC", kernel_layout="HWIO")
    return te.create_prim_func([x, weights, sums], index_dtype_override="int64")


def scheduled(func: Any, target: Any) -> Any:
    func = func.with_attr({"tirx.noalias": True, "global_symbol": "main"})
    if str(func.params[0].ty.dtype.dtype) == "bfloat16":
        return default_schedule(func, target)
    return packed_default_schedule(with_weights(func, [1]), target).func


def prefetched(func: Any) -> list[Any]:
    """Return the elements whose addresses are prefetched."""
    calls = [node for node in walk(func.body) if isinstance(node, tvm.ir.Call)]
    addresses = [
        call.args[1] for call in calls if len(call.args) > 1 and getattr(call.args[1], "op", None) is not None
    ]
    return [address.args[0] for address in addresses if str(address.op.name).endswith("address_of")]


def numbers(value: Any, loops: dict[str, NDArray[np.int64]]) -> Any:
    """Return an index for all values of the loops, by name."""
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.Var):
        return loops[str(value.name)]
    if isinstance(value, tirx.Cast):
        return numbers(value.value, loops)
    of = {
        tirx.Add: operator.add,
        tirx.Sub: operator.sub,
        tirx.Mul: operator.mul,
        tirx.FloorDiv: operator.floordiv,
        tirx.FloorMod: operator.mod,
        tirx.Min: np.minimum,
    }
    return of[type(value)](numbers(value.a, loops), numbers(value.b, loops))


def lines_of(load: Any, func: Any) -> NDArray[np.int64]:
    """Return the lines of the weights that an address is in while the loops run."""
    used = {str(node.name) for index in load.indices for node in walk(index) if isinstance(node, tirx.Var)}
    extents = {
        str(node.loop_var.name): int(node.extent)
        for node in walk(func.body)
        if isinstance(node, tirx.For) and str(node.loop_var.name) in used
    }
    grids = np.meshgrid(*map(np.arange, extents.values()), indexing="ij", sparse=True)
    loops = dict(zip(extents, grids, strict=True))
    total: Any = 0
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        total = total * int(extent) + numbers(index, loops)
    size = {"bfloat16": 2, "float32": 4}[str(load.source.dtype)]
    return np.unique(np.asarray(total)) * size // LINE


@pytest.mark.parametrize(
    "func",
    [
        of_bfloat16(14, 64),
        of_bfloat16(7, 512),
        of_bfloat16(13, 128),
        of_float32(14, 96),
        of_float32(7, 256),
        of_float32(13, 320),
    ],
    ids=["bfloat16", "many-channels", "bfloat16-tail", "float32", "panels", "float32-tail"],
)
def test_every_line_of_the_next_weights_is_prefetched(func: Any) -> None:
    result = scheduled(func, ZEN4)
    loads = prefetched(result)
    assert loads
    lines = {int(line) for load in loads for line in lines_of(load, result)}
    weights = math.prod(int(extent) for extent in loads[0].source.shape)
    end = weights * {"bfloat16": 2, "float32": 4}[str(loads[0].source.dtype)] // LINE
    first = min(lines)
    assert first > 0, "the first tile's weights are read at once"
    assert end % first == 0, "they are a whole part of all"
    assert lines == set(range(first, end)), "no line is left out, and none lies behind the weights"


@pytest.mark.parametrize("func", [of_bfloat16(2, 64), of_float32(2, 96)], ids=["bfloat16", "float32"])
def test_weights_that_a_single_tile_uses_are_not(func: Any) -> None:
    assert not prefetched(scheduled(func, ZEN4))


@pytest.mark.parametrize("func", [of_bfloat16(14, 16), of_float32(14, 16)], ids=["bfloat16", "float32"])
def test_the_only_weights_are_not_and_the_kernel_keeps_its_schedule(func: Any) -> None:
    assert not prefetched(scheduled(func, ZEN4))


@pytest.mark.parametrize(("target", "instruction"), [(ZEN4, "prefetcht1"), (ARM, "prfm")])
def test_it_is_the_cpus_instruction(target: Any, instruction: str) -> None:
    built = tvm.tirx.build(tvm.IRModule({"main": scheduled(of_float32(14, 96), target)}), tvm_target(target))
    code = str(built.inspect_source("asm"))
    inner = max(
        re.split(r"^\S+:", code, flags=re.MULTILINE), key=lambda block: len(re.findall("v?fm(add|la)", block))
    )
    assert instruction in inner
