"""Copies of bfloat16 inside of a kernel take 16 bits, and the instruction reads its factors as they lie there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.tvm.base.narrow_buffers import with_narrow_buffers
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import schedule_of
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d

ZEN4 = parse_target("llvm -mcpu=znver4")
HOST = detect_host_target()


def convolution() -> Any:
    """Return a padded 3x3 convolution of 8 x 8 positions and 32 channels."""
    x = te.placeholder((1, 8, 8, 32), "bfloat16", name="x")
    weights = te.placeholder((2, 3, 3, 16, 32), "bfloat16", name="weights")
    sums = bfloat16_conv2d(x, weights, channels=32, strides=(1, 1), padding=(1,) * 4, dilation=(1, 1))
    func = te.create_prim_func([x, weights, sums], index_dtype_override="int64")
    return func.with_attr({"tirx.noalias": True, "global_symbol": "main"})


def padded(value: Any, outside: float) -> Any:
    """Return a kernel that pads what `value` makes of its elements, and widens them."""
    x = te.placeholder((6, 16), "bfloat16", name="x")
    inside = te.compute(
        (8, 16),
        lambda i, j: tirx.if_then_else(
            tirx.all(i >= 1, i < 7), value(x[i - 1, j]), tirx.const(outside, "bfloat16")
        ),
        name="inside",
    )
    result = te.compute((8, 16), lambda i, j: inside[i, j].astype("float32"), name="result")
    func = te.create_prim_func([x, result], index_dtype_override="int64")
    return func.with_attr({"tirx.noalias": True, "global_symbol": "main"})


def test_the_instruction_reads_its_shared_factors_by_one_broadcast() -> None:
    built = tvm.tirx.build(tvm.IRModule({"main": default_schedule(convolution(), ZEN4)}), tvm_target(ZEN4))
    blocks = re.split(r"^\S+:", str(built.inspect_source("asm")), flags=re.MULTILINE)
    inner = max(blocks, key=lambda block: block.count("vdpbf16ps"))
    assert inner.count("vdpbf16ps") >= 8
    assert not re.search(r"vperm|vpshuf|vpmov", inner)


@pytest.mark.parametrize("outside", [0.0, -1.5, 0.1, float("-inf")])
def test_copies_and_constants_keep_their_values(outside: float) -> None:
    func = with_narrow_buffers(padded(lambda element: element, outside))
    assert "uint16" in func.script()
    x = np.random.default_rng(0).normal(size=(6, 16)).astype(numpy_dtype("bfloat16"))
    result = tvm.runtime.tensor(np.zeros((8, 16), np.float32))
    tvm.tirx.build(tvm.IRModule({"main": func}), tvm_target(HOST))["main"](tvm.runtime.tensor(x), result)
    expected = np.full((8, 16), outside, numpy_dtype("bfloat16")).astype(np.float32)
    expected[1:7] = x.astype(np.float32)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_what_is_computed_stays_as_it_is() -> None:
    func = padded(lambda element: element * tirx.const(3, "bfloat16"), 0.0)
    assert with_narrow_buffers(func).same_as(func)


def test_copies_of_what_is_computed_stay_as_they_are() -> None:
    """A rounded, then reshaped input: its loops without a schedule did not build."""
    x = te.placeholder((8, 16), "float32", name="x")
    rounded = te.compute((8, 16), lambda i, j: x[i, j].astype("bfloat16"), name="rounded")
    turned = te.compute((16, 8), lambda i, j: rounded[j, i], name="turned")
    result = te.compute((128,), lambda i: turned[i // 8, i % 8], name="result")
    func = te.create_prim_func([x, result], index_dtype_override="int64")
    assert with_narrow_buffers(func).same_as(func)
    values = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    outputs = tvm.runtime.tensor(np.zeros(128, numpy_dtype("bfloat16")))
    built = tvm.tirx.build(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), tvm_target(HOST))
    built["main"](tvm.runtime.tensor(values), outputs)
    np.testing.assert_array_equal(
        outputs.numpy().astype(np.float32),
        values.T.reshape(-1).astype(numpy_dtype("bfloat16")).astype(np.float32),
    )


def test_a_kernel_without_such_buffers_stays_as_it_is() -> None:
    func = schedule_of(padded(lambda element: element, 0.0))
    func.compute_inline(func.get_sblock("inside"))
    assert with_narrow_buffers(func.mod["main"]).same_as(func.mod["main"])
