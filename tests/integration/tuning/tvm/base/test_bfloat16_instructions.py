"""Vectors are rounded to bfloat16 by the CPU's instruction, to the nearest, ties to even."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.target.dot_products import bfloat16_lanes
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import schedule_of

HOST = detect_host_target()
SIZE = 64


def rounding(target: Target, lanes: int) -> Any:
    """Return the built kernel that rounds 64 numbers, `lanes` at once."""
    x = te.placeholder((SIZE,), "float32", name="x")
    result = te.compute((SIZE,), lambda i: x[i].astype("bfloat16"), name="rounded")
    schedule = schedule_of(te.create_prim_func([x, result], index_dtype_override="int64"))
    (loop,) = schedule.get_loops(schedule.get_sblock("rounded"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return tvm.tirx.build(schedule.mod, tvm_target(target))


@pytest.mark.parametrize(
    ("target", "lanes", "instruction"),
    [
        ("llvm -mcpu=znver4", 16, "vcvtneps2bf16"),
        ("llvm -mcpu=znver4", 32, "vcvtneps2bf16"),
        ("llvm -mcpu=generic -mattr=+bf16 -mtriple=aarch64-linux-gnu", 4, "bfcvtn"),
    ],
)
def test_it_is_an_instruction(target: str, lanes: int, instruction: str) -> None:
    assert instruction in str(rounding(parse_target(target), lanes).inspect_source("asm"))


@pytest.mark.parametrize("target", ["llvm -mcpu=znver4 -mattr=-avx512bf16", "llvm -mcpu=skylake-avx512"])
def test_a_cpu_without_it_rounds_by_integers(target: str) -> None:
    assert "bf16" not in str(rounding(parse_target(target), 16).inspect_source("asm"))


@pytest.mark.skipif(not bfloat16_lanes(HOST), reason="this CPU has no instruction for bfloat16")
@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_it_rounds_to_the_nearest_and_keeps_what_is_no_number(lanes: int) -> None:
    values = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0x7F7FFFFF, 0x7F800000, 0xFF800000], np.uint32)
    values[: len(ties)] = ties.view(np.float32)
    if lanes > 1:  # one by one it is still TVM's rounding
        values[6] = np.uint32(0x7FFFFFFF).view(np.float32)
    result = tvm.runtime.tensor(np.zeros(SIZE, numpy_dtype("bfloat16")))
    rounding(HOST, lanes)["main"](tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(
        result.numpy().astype(np.float32), values.astype(numpy_dtype("bfloat16")).astype(np.float32)
    )
