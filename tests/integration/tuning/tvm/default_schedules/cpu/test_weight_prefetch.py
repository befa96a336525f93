"""A product prefetches the weights of the next tiles of channels: each line of them once while the last ones are multiplied."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from tvm import te, tirx, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import substitute, walk
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


def offsets(load: Any, loops: dict[str, Any], values: dict[str, int]) -> int:
    """Return an element's offset in its buffer, for values of the loops by name."""
    bound = [(loops[name], tirx.const(value, "int64")) for name, value in values.items()]
    total: Any = tirx.const(0, "int64")
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        total = total * extent + substitute(index, bound)
    return int(tvm.sym.Analyzer().simplify(total))


@pytest.mark.parametrize("func", [of_bfloat16(14, 64), of_float32(14, 96)], ids=["bfloat16", "float32"])
def test_every_line_of_the_next_weights_is_prefetched(func: Any) -> None:
    result = scheduled(func, ZEN4)
    loads = prefetched(result)
    assert loads
    used = {node for node in walk(loads[0]) if isinstance(node, tirx.Var)}
    loops = {
        str(node.loop_var.name): node
        for node in walk(result.body)
        if isinstance(node, tirx.For) and any(node.loop_var.same_as(variable) for variable in used)
    }
    variables = {name: loop.loop_var for name, loop in loops.items()}
    extents = {name: int(loop.extent) for name, loop in loops.items()}
    points: list[dict[str, int]] = [{}]
    for name, extent in extents.items():
        points = [{**point, name: value} for point in points for value in range(extent)]
    size = {"bfloat16": 2, "float32": 4}[str(loads[0].source.dtype)]
    lines = {
        offsets(load, variables, point) * size // LINE
        for load in loads
        for point in (points if len(points) < 20_000 else points[:: len(points) // 20_000])
    }
    weights = 1
    for extent in loads[0].source.shape:
        weights *= int(extent)
    first, end = min(lines), weights * size // LINE
    assert first > 0, "the first weights are read at once"
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
