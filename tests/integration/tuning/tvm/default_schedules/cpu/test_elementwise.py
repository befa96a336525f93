"""Default schedules of stages without a reduction."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from bare_kernels import build, run_bare
from tvm import te, tirx, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.default_schedules.stage import Machine

HOST = parse_target("host")
AVX512 = parse_target("llvm -mcpu=skylake-avx512 -num-cores=1")
ARM = parse_target("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu")


def code_of_repeated(times: int, columns: int) -> tuple[str, str]:
    """Return script and assembly of a kernel that reads each element of rows so many times in a row."""
    x = te.placeholder(int64_sizes((4, columns)), name="x")
    y = te.compute(int64_sizes((4, columns * times)), lambda i, j: x[i, j // times], name="y")
    func = default_schedule(te.create_prim_func([x, y]), AVX512)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(module, target=tvm_target(AVX512))
    return func.script(), built.inspect_source("asm")


@pytest.mark.parametrize("times", [2, 4, 8])
def test_repeated_elements_are_loaded_once_and_shuffled(times: int) -> None:
    script, assembly = code_of_repeated(times, 32)
    assert "T.vectorized" in script
    assert "vperm" in assembly or "vbroadcast" in assembly
    assert "vgather" not in assembly


def test_rows_that_no_vector_divides_stay_as_they_were() -> None:
    script, _ = code_of_repeated(2, 7)
    assert "T.vectorized" not in script


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_channels_become_those_of_pixels_in_vectors(channels: int) -> None:
    rows, columns = 8, 40
    x = te.placeholder(int64_sizes((1, channels, rows, columns)), name="x")
    scaled = te.compute(x.shape, lambda *at: tirx.nearbyint(x[at] * 3).astype("uint8"), name="scaled")
    y = te.compute(
        int64_sizes((1, rows, columns * channels)),
        lambda n, i, j: scaled[n, j % channels, i, j // channels],
        name="y",
    )
    func = default_schedule(te.create_prim_func([x, y]), HOST)
    assert f"T.unroll(T.int64({channels}))" in func.script()
    built = tvm.tirx.build(
        tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target=tvm_target(HOST)
    )
    values = np.random.default_rng(0).uniform(0, 80, (1, channels, rows, columns)).astype(np.float32)
    result = tvm.runtime.empty((1, rows, columns * channels), "uint8")
    built(tvm.runtime.tensor(values), result)
    expected = np.rint(values * 3).astype(np.uint8).transpose(0, 2, 3, 1).reshape(1, rows, -1)
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize(("channels", "columns"), [(5, 40), (3, 1)])
def test_other_orders_of_channels_are_not_split(channels: int, columns: int) -> None:
    x = te.placeholder(int64_sizes((channels, 8, columns)), name="x")
    y = te.compute(
        int64_sizes((8, columns * channels)), lambda i, j: x[j % channels, i, j // channels], name="y"
    )
    assert (
        f"T.unroll(T.int64({channels}))" not in default_schedule(te.create_prim_func([x, y]), HOST).script()
    )


def script_of(*tensors: object) -> str:
    return default_schedule(te.create_prim_func(list(tensors)), HOST).script()


@pytest.mark.parametrize("channels", [16, 24])
def test_what_is_gathered_or_resized_along_other_dimensions_is_read_in_vectors(channels: int) -> None:
    x = te.placeholder(int64_sizes((1, 16, 20, channels)), name="x")
    resized = topi.image.resize2d(x, [0.0] * 4, (32, 40), layout="NHWC", method="linear")
    assert "T.vectorized" in script_of(x, resized)
    rows = te.placeholder(int64_sizes((9,)), "int32", name="rows")
    assert "T.vectorized" in script_of(x, rows, topi.take(x, rows, axis=2, mode="clip"))


def test_what_is_gathered_along_the_last_dimension_is_not() -> None:
    x = te.placeholder(int64_sizes((8, 64)), name="x")
    columns = te.placeholder(int64_sizes((16,)), "int32", name="columns")
    y = te.compute(int64_sizes((8, 16)), lambda i, j: x[i, columns[j].astype("int64")], name="y")
    assert "T.vectorized" not in script_of(x, columns, y)


@pytest.mark.parametrize("channels", [3, 4])
def test_a_padding_of_few_channels_has_rows_without_conditions(channels: int) -> None:
    x = te.placeholder(int64_sizes((1, 20, 30, channels)), name="x")
    func = default_schedule(te.create_prim_func([x, topi.nn.pad(x, [0, 2, 1, 0], [0, 2, 1, 0])]), HOST)
    assert f"range(T.int64({channels}), T.int64({31 * channels}))" in func.script()
    built = tvm.tirx.build(
        tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target=tvm_target(HOST)
    )
    values = np.random.default_rng(0).normal(size=(1, 20, 30, channels)).astype(np.float32)
    result = tvm.runtime.empty((1, 24, 32, channels), "float32")
    built(tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), np.pad(values, [(0, 0), (2, 2), (1, 1), (0, 0)]))


def head(size: int, classes: int, boxes: int) -> tuple[Any, ...]:
    """Return a detector's head: transposed maps of two sizes as columns, one behind the other, after a sigmoid, below other rows."""
    maps = [
        te.placeholder(int64_sizes((1, side, side, classes)), name=f"map{side}") for side in (size, size // 2)
    ]
    rows = te.placeholder(int64_sizes((1, boxes, size * size * 5 // 4)), name="rows")
    columns = [
        topi.reshape(topi.transpose(x, (0, 3, 1, 2)), (1, classes, int(x.shape[1]) ** 2)) for x in maps
    ]
    result = topi.concatenate([rows, topi.sigmoid(topi.concatenate(columns, axis=2))], axis=1)
    return (*maps, rows, result)


def test_a_head_of_transposed_maps_is_copied_in_vectors_by_all_threads() -> None:
    tensors = head(32, 20, 4)
    func = default_schedule(te.create_prim_func(list(tensors), index_dtype_override="int64"), HOST)
    script = func.script()
    assert script.count('T.sblock("T_reshape') == 2, "transposed apart"
    lanes = Machine.of(HOST).lanes("float32")
    assert f"range(T.int64({1024 // lanes}), T.int64({1280 // lanes}))" in script, (
        "the columns of the second map, in vectors"
    )
    assert "for ax0_ax1_fused in T.parallel(T.int64(24))" in script
    built = tvm.tirx.build(
        tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), target=tvm_target(HOST)
    )
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=[int(size) for size in tensor.shape]).astype(np.float32) for tensor in tensors[:-1]
    ]
    result = tvm.runtime.empty([int(size) for size in tensors[-1].shape], "float32")
    built(*map(tvm.runtime.tensor, values), result)
    columns = np.concatenate([x.transpose(0, 3, 1, 2).reshape(1, 20, -1) for x in values[:2]], axis=2)
    expected = np.concatenate([values[2], 1 / (1 + np.exp(-columns))], axis=1)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)


def quantised_heads(heads: int, rows: int, columns: int) -> tirx.PrimFunc:
    """Return a kernel that quantises the heads of an attention, and puts those of a row side by side."""
    x = te.placeholder(int64_sizes((1, heads, rows, columns)), name="x")
    bound = [te.placeholder(int64_sizes((1,)), name=name) for name in ("low", "high")]
    width = heads * columns
    y = te.compute(
        int64_sizes((rows, width)),
        lambda i, j: (
            tirx.min(
                bound[1][0],
                tirx.max(
                    bound[0][0],
                    tirx.nearbyint(x[0, j % width // columns, (j // width + i) % rows, j % columns] * 9),
                ),
            )
            .astype("int8")
            .astype("float32")
        ),
        name="y",
    )
    return te.create_prim_func([x, *bound, y], index_dtype_override="int64")


def test_heads_that_come_side_by_side_are_read_in_vectors_on_arm(tmp_path: Path) -> None:
    """LLVM went through four heads at once, and kept what it read of them on the stack: 311 accesses of it."""
    func = default_schedule(quantised_heads(4, 32, 64), ARM)
    assert "T.vectorized(T.int64(16))" in func.script()
    text = str(build(func, ARM).inspect_source("asm"))
    assert not re.search(r"\t(?:ldr|str|ldp|stp)\tq.*\[sp", text)
    x = np.random.default_rng(0).normal(scale=8, size=(1, 4, 32, 64)).astype(np.float32)
    low, high = np.float32([-128]), np.float32([127])
    *_, result = run_bare(func, "aarch64", [x, low, high, np.zeros((32, 256), np.float32)], tmp_path)
    expected = np.clip(np.rint(x * np.float32(9)), -128, 127).transpose(0, 2, 1, 3).reshape(32, 256)
    np.testing.assert_array_equal(result, expected)


def test_heads_stay_as_they_were_on_x86_and_where_no_vector_divides_them() -> None:
    assert "T.vectorized" not in default_schedule(quantised_heads(4, 32, 64), AVX512).script()
    assert "T.vectorized" not in default_schedule(quantised_heads(4, 32, 6), ARM).script()
