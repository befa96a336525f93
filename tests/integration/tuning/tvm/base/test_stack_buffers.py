"""Small buffers are on the stack: no call for them in a tile, and LLVM keeps a tile's sums in registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.script import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.tvm.base.launches import workspaces_of
from tunefarm_tuning.tvm.base.stack_buffers import with_buffers_on_stack
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import schedule_of
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule

AVX512 = parse_target("llvm -mcpu=cascadelake")
HOST = detect_host_target()


def convolution(channels: int) -> Any:
    """Return a 1x1 convolution with a tile of more than a kilobyte of sums."""
    x = te.placeholder((1, 14, 14, channels), "float32", name="x")
    weights = te.placeholder((1, 1, channels, 96), "float32", name="weights")
    sums = topi.nn.conv2d(x, weights, [1, 1], [0, 0], [1, 1], data_layout="NHWC", kernel_layout="HWIO")
    result = topi.nn.relu(sums)
    func = te.create_prim_func([x, weights, result], index_dtype_override="int64")
    return func.with_attr({"tirx.noalias": True, "global_symbol": "main"})


def built(func: Any, target: Any) -> Any:
    return tvm.tirx.build(tvm.IRModule({"main": func}), target=tvm_target(target))


def test_a_tile_takes_no_memory_and_its_sums_stay_in_registers() -> None:
    code = str(built(default_schedule(convolution(64), AVX512), AVX512).inspect_source("asm"))
    assert "AllocWorkspace" not in code
    inner = max(re.split(r"^\S+:", code, flags=re.MULTILINE), key=lambda block: block.count("vfmadd"))
    assert inner.count("vfmadd") >= 16
    assert not re.search(r"zmm\d+, -?\d*\(%rsp", inner), "no sum is stored"


def test_it_computes_the_same() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 14, 14, 8)).astype(np.float32)
    weights = rng.normal(size=(1, 1, 8, 96)).astype(np.float32)
    result = tvm.runtime.tensor(np.zeros((1, 14, 14, 96), np.float32))
    scheduled = default_schedule(convolution(8), HOST)
    built(scheduled, HOST)["main"](*map(tvm.runtime.tensor, (x, weights)), result)
    np.testing.assert_allclose(result.numpy(), np.maximum(x @ weights[0, 0], 0), rtol=1e-5, atol=1e-5)


def test_memory_between_the_kernels_of_a_gpu_is_not_on_this_machines_stack() -> None:
    """Seen on an H200: every candidate of a softmax read an illegal address."""

    @T.prim_func(s_tir=True)
    def scaled(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")) -> None:
        sums = T.sblock_alloc_buffer((64,))
        for block in T.thread_binding(2, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("sums"):
                    i = T.axis.spatial(64, block * 32 + thread)
                    sums[i] = x[i] + T.float32(1)
        for block in T.thread_binding(2, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("result"):
                    i = T.axis.spatial(64, block * 32 + thread)
                    y[i] = sums[63 - i]

    assert workspaces_of(scaled) == ["sums"]
    inlined = schedule_of(scaled)
    inlined.compute_inline(inlined.get_sblock("sums"))
    assert workspaces_of(inlined.mod["main"]) == []
    built_ = built(scaled.with_attr("global_symbol", "main"), parse_target("cuda/sm_90"))
    code = str(built_.inspect_source("ll"))
    assert "AllocWorkspace" in code
    assert not re.search(r"alloca \[64 x float\]", code)


def _with_buffers(shape: tuple[int, ...], count: int = 1) -> Any:
    statements: list[Any] = []
    for number in range(count):
        buffer = tvm.tirx.decl_buffer(shape, "float32", f"buffer_{number}")
        statements += [
            tvm.tirx.AllocBuffer(buffer),
            tvm.tirx.BufferStore(buffer, tvm.tirx.FloatImm("float32", 1.0), [0]),
        ]
    return tvm.tirx.PrimFunc([], tvm.tirx.SeqStmt(statements))


@pytest.mark.parametrize(
    ("elements", "buffers", "on_stack"),
    [(1024, 1, 1), (1025, 1, 0), (16, 3, 3), (1024, 20, 16)],
    ids=["4 KB", "more", "several", "64 KB in all"],
)
def test_what_is_small_enough(elements: int, buffers: int, on_stack: int) -> None:
    func = _with_buffers((elements,), buffers)
    result = with_buffers_on_stack(func)
    assert result.script().count("disable_lower_builtin") == on_stack
    assert result.same_as(func) is (on_stack == 0)


def test_a_size_that_is_known_later_is_left_to_tvm() -> None:
    @T.prim_func(private=True)
    def of_any_size(x: T.handle) -> None:
        size = T.int32()
        source = T.match_buffer(x, (size,), "float32")
        copy = T.alloc_buffer((size,), "float32")
        copy[0] = source[0]

    assert with_buffers_on_stack(of_any_size).same_as(of_any_size)
