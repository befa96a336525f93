"""Extrema and roundings on CPUs that are not x86: vector instructions without a call, with the C library's results, under QEMU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bare_kernels import TARGETS, build, run_bare
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.tir import schedule_of

_SIZE = 256
_LANES = 4
ROUNDINGS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "nearbyint": (tirx.nearbyint, np.rint),
    "floor": (tirx.floor, np.floor),
    "ceil": (tirx.ceil, np.ceil),
}


def kernel(
    function: Callable[..., Any], inputs: int, *, lanes: int = _LANES, dtype: str = "float32"
) -> tirx.PrimFunc:
    """Return a kernel that computes vectors of a function of so many inputs."""
    given = [te.placeholder((_SIZE,), dtype, name=f"x{number}") for number in range(inputs)]
    result = te.compute((_SIZE,), lambda i: function(*(x[i] for x in given)), name="result")
    schedule = schedule_of(te.create_prim_func([*given, result], index_dtype_override="int64"))
    (loop,) = schedule.get_loops(schedule.get_sblock("result"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod["main"]


def assembly(func: tirx.PrimFunc, target: str) -> str:
    return str(build(func, parse_target(target)).inspect_source("asm"))


def numbers() -> NDArray[np.float32]:
    """Ties, neighbours of whole numbers, both zeros, and what is too large to have a fraction."""
    special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997, 1e-40, -1e-40]
    special += [8388607.5, -8388607.5, 8388608.0, 8388609.0, -8388611.0, 1e10, -3e38, np.inf, -np.inf, np.nan]
    rng = np.random.default_rng(0)
    drawn = rng.uniform(-1, 1, _SIZE - len(special)) * 2.0 ** rng.uniform(-3, 26, _SIZE - len(special))
    return np.concatenate([special, drawn]).astype(np.float32)


def clipped(x: Any, low: Any, high: Any) -> Any:
    """As a kernel has it whose bounds are arguments."""
    return tirx.min(high, tirx.max(low, x))


def test_bounds_that_are_arguments_are_an_instruction_each() -> None:
    text = assembly(kernel(clipped, 3), "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu")
    assert text.count("fmax\t") == text.count("fmin\t") > 0
    assert not re.search(r"\t(fcmg[et]|fcmp|bi[tf]|bsl|fcsel)\t", text.partition("main_compute_:")[2])


def test_bounds_of_float16_are_too_where_the_cpu_computes_in_it() -> None:
    func = kernel(clipped, 3, lanes=8, dtype="float16")
    text = assembly(func, "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu")
    assert re.search(r"\tfmax\tv\d+\.8h", text)
    assert "\tfmax\t" not in assembly(func, "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu")


def test_bounds_that_are_constants_are_an_instruction_each() -> None:
    text = assembly(
        kernel(lambda x: tirx.min(tirx.max(x, tirx.const(-1.0)), tirx.const(6.0)), 1),
        "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu",
    )
    assert text.count("fmaxnm\t") == text.count("fminnm\t") > 0


def test_a_pooling_is_an_instruction_for_each_element() -> None:
    x = te.placeholder((64, 9), "float32", name="x")
    tap = te.reduce_axis((0, 9), name="tap")
    pooled = te.compute((64,), lambda i: te.max(x[i, tap], axis=tap), name="pooled")
    schedule = schedule_of(te.create_prim_func([x, pooled], index_dtype_override="int64"))
    text = assembly(schedule.mod["main"], "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu").partition(
        "main_compute_:"
    )[2]
    assert "\tfmax\t" in text
    assert not re.search(r"\t(fcmg[et]|fcmp|bi[tf]|bsl|fcsel)\t", text)


def test_extrema_keep_what_is_no_number(tmp_path: Path) -> None:
    x = numbers()
    low, high = np.full(_SIZE, -1.5, np.float32), np.full(_SIZE, 2.5, np.float32)
    *_, result = run_bare(kernel(clipped, 3), "aarch64", [x, low, high, np.zeros_like(x)], tmp_path)
    np.testing.assert_array_equal(result, np.minimum(high, np.maximum(low, x)))


@pytest.mark.parametrize(("byte", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_floats_that_go_through_bytes_are_not_taken_apart(
    byte: str, low: int, high: int, tmp_path: Path
) -> None:
    def quantised(x: Any) -> Any:
        return tirx.max(tirx.min(tirx.nearbyint(x), tirx.const(float(high))), tirx.const(float(low))).astype(
            byte
        )

    func = kernel(lambda x: quantised(x).astype("float32"), 1)
    text = assembly(func, TARGETS["aarch64"].key).partition("main_compute_:")[2]
    assert "\tfcvtz" in text
    assert not re.search(r"\t(umov|mov\tv\d+\.[bh]\[)", text)
    x = np.random.default_rng(0).uniform(-300, 300, _SIZE).astype(np.float32)
    _, result = run_bare(func, "aarch64", [x, np.zeros_like(x)], tmp_path)
    np.testing.assert_array_equal(result, np.clip(np.rint(x), low, high))
    unbounded = kernel(lambda x: x.astype(byte).astype("float32"), 1)
    _, result = run_bare(unbounded, "aarch64", [x, np.zeros_like(x)], tmp_path)
    np.testing.assert_array_equal(
        result, x.astype(np.int32).astype(byte), "the low eight bits count, as ever"
    )
    bytes_alone = assembly(kernel(quantised, 1), TARGETS["aarch64"].key).partition("main_compute_:")[2]
    assert re.search(r"\t(s?q?xtn|uzp1)2?\t", bytes_alone), "bytes that are stored stay bytes"


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("lanes", [1, _LANES])
@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("machine", ["arm", "riscv64"])
def test_roundings_are_the_c_librarys_without_a_call(
    machine: str, name: str, lanes: int, tmp_path: Path
) -> None:
    function, reference = ROUNDINGS[name]
    func = kernel(function, 1, lanes=lanes)
    assert not re.search(
        r"\t(bl|call)\t", assembly(func, TARGETS[machine].key).partition("main_compute_:")[2]
    )
    x = numbers()
    _, result = run_bare(func, machine, [x, np.zeros_like(x)], tmp_path)
    tiny = (np.abs(x) < 2.0**-126) if machine == "arm" else np.zeros(_SIZE, bool)  # NEON takes them for zeros
    np.testing.assert_array_equal(result[~tiny], reference(x)[~tiny])
    np.testing.assert_array_equal(np.signbit(result), np.signbit(reference(x)))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu", "frinti\t"),
        ("llvm -mcpu=cortex-a53 -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard", "vrintr.f32\t"),
        ("llvm -mcpu=x86-64-v3", "vroundps\t"),
    ],
)
def test_an_instruction_that_rounds_is_kept(target: str, instruction: str) -> None:
    assert instruction in assembly(kernel(tirx.nearbyint, 1), target)


def test_nothing_changes_for_x86() -> None:
    for target in ("llvm -mcpu=x86-64", "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu"):
        text = assembly(kernel(clipped, 3), target)
        assert re.search(r"\tv?maxps\t", text)
        assert not re.search(r"\tv?cmp\w*ps\t", text), "as LLVM writes a maximum that keeps each NaN"
