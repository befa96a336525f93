"""Transposes in squares of vectors: every element lands where it belongs, also where no vector divides a side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes, walk
from tunefarm_tuning.tvm.default_schedules.cpu.transposes import write_transpose
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.default_schedules.stage import Machine, finished

HOST = parse_target("host")
AVX512 = parse_target("llvm -mcpu=x86-64-v4")
ARM = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")

TRANSPOSES = {
    "to channels last": ((1, 64, 56, 56), (0, 2, 3, 1)),
    "to channels first": ((2, 33, 33, 85), (0, 3, 1, 2)),
    "heads": ((3, 64, 197), (0, 2, 1)),
    "a side of four": ((1, 4, 300), (0, 2, 1)),
    "a side of five": ((5, 6, 2, 7), (3, 1, 2, 0)),
    "three dimensions change": ((12, 3, 20, 17), (3, 1, 2, 0)),
    "large": ((1, 128, 128, 32), (0, 3, 1, 2)),
}


def transpose(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> tirx.PrimFunc:
    x = te.placeholder(int64_sizes(shape), dtype, name="x")
    func = te.create_prim_func([x, topi.transpose(x, axes)], index_dtype_override="int64")
    return func.with_attr("tirx.noalias", True)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_every_element_is_where_it_belongs(name: str, dtype: str) -> None:
    shape, axes = TRANSPOSES[name]
    scheduled = default_schedule(transpose(shape, axes, dtype), HOST).with_attr("global_symbol", "main")
    main = tvm.compile(tvm.IRModule({"main": scheduled}), target=tvm_target(HOST))["main"]
    given = np.random.default_rng(0).integers(-(2**31), 2**31 - 1, shape, dtype=np.int32).view(dtype)
    expected = np.ascontiguousarray(given.transpose(axes))
    result = tvm.runtime.tensor(np.zeros_like(expected))
    main(tvm.runtime.tensor(given), result)
    assert result.numpy().tobytes() == expected.tobytes(), "every bit, those of a NaN as well"


@pytest.mark.parametrize(("target", "lanes"), [(AVX512, 16), (ARM, 4)], ids=["avx512", "arm"])
def test_squares_are_as_wide_as_a_vector(target: object, lanes: int) -> None:
    scheduled = default_schedule(transpose((1, 64, 56, 56), (0, 2, 3, 1)), target)
    runs = {int(node.lanes) for node in walk(scheduled.body) if isinstance(node, tirx.Ramp)}
    assert runs == {lanes}
    built = tvm.tirx.build(
        tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")}), tvm_target(target)
    )
    assert "main" in built.inspect_source("asm")


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((1, 3, 224, 224), (0, 2, 3, 1), "float32"),  # a side is shorter than a vector
        ((8, 20, 30), (1, 0, 2), "float32"),  # rows stay as they are
        ((64, 64), (1, 0), "uint8"),
        ((64, 64), (1, 0), "float64"),
    ],
)
def test_other_copies_are_left_to_other_rules(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> None:
    assert write_transpose(transpose(shape, axes, dtype), Machine.of(AVX512)) is None


def affine(shape: tuple[int, ...]) -> tuple[list[te.Tensor], te.Tensor]:
    """Return channels first of an image, each times a factor, plus a bias, not negative."""
    channels = shape[-1]
    x, factors, bias = (
        te.placeholder(int64_sizes(size), "float32", name=name)
        for name, size in (("x", shape), ("factors", (channels, 1, 1)), ("bias", (channels, 1, 1)))
    )
    return [x, factors, bias], topi.nn.relu(topi.transpose(x, (0, 3, 1, 2)) * factors + bias)


def residual(shape: tuple[int, ...]) -> tuple[list[te.Tensor], te.Tensor]:
    """Return the sum of two images that are transposed, of one that is not, and of a row of it, as numbers of another type."""
    batch, rows, columns, channels = shape
    x, y = (te.placeholder(int64_sizes(shape), "float32", name=name) for name in "xy")
    there = te.placeholder(int64_sizes((batch, channels, rows, columns)), "float32", name="there")
    row = te.placeholder(int64_sizes((columns,)), "float32", name="row")
    sums = topi.transpose(x, (0, 3, 1, 2)) + topi.transpose(y, (0, 3, 1, 2)) + there + row
    return [x, y, there, row], topi.cast(sums, "float64")


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("kernel", [affine, residual])
@pytest.mark.parametrize("shape", [(1, 16, 16, 32), (2, 5, 7, 37), (1, 1, 9, 4), (3, 12, 1, 17)])
def test_what_is_computed_of_transposed_elements_is_computed_of_each(
    kernel: Callable[[tuple[int, ...]], tuple[list[te.Tensor], te.Tensor]], shape: tuple[int, ...]
) -> None:
    inputs, result = kernel(shape)
    func = te.create_prim_func([*inputs, result], index_dtype_override="int64")
    written = write_transpose(func.with_attr("global_symbol", "main"), Machine.of(HOST))
    assert written is not None
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(size) for size in x.shape]).astype(np.float32) for x in inputs]
    results = []
    for version in (finished(written, func), func):
        module = tvm.IRModule({"main": version.with_attr("global_symbol", "main")})
        main = tvm.compile(module, target=tvm_target(HOST))["main"]
        empty = np.full([int(size) for size in result.shape], np.nan, str(result.dtype))
        results.append(tvm.runtime.tensor(empty))
        main(*map(tvm.runtime.tensor, arrays), results[-1])
    np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=1e-5, atol=1e-5)


def test_a_transpose_of_a_part_or_with_a_border_or_beside_itself_is_left_to_other_rules() -> None:
    x = te.placeholder(int64_sizes((64, 64)), "float32", name="x")
    bordered = topi.transpose(topi.nn.pad(x, [0, 0], [1, 0]))
    both = x + topi.transpose(x)
    for result in (bordered, both, te.compute(int64_sizes((32, 64)), lambda i, j: x[j, i])):
        func = te.create_prim_func([x, result], index_dtype_override="int64")
        assert write_transpose(func, Machine.of(AVX512)) is None


def test_a_transpose_of_any_number_of_images_is_left_to_other_rules() -> None:
    images = te.var("n", "int64")
    x = te.placeholder((images, *int64_sizes((64, 48))), "float32", name="x")
    func = te.create_prim_func([x, topi.transpose(x, (0, 2, 1))])
    assert write_transpose(func, Machine.of(HOST)) is None
    scheduled = default_schedule(func, HOST).with_attr("global_symbol", "main")
    main = tvm.compile(tvm.IRModule({"main": scheduled}), target=tvm_target(HOST))["main"]
    given = np.random.default_rng(0).standard_normal((3, 64, 48)).astype(np.float32)
    result = tvm.runtime.tensor(np.zeros((3, 48, 64), np.float32))
    main(tvm.runtime.tensor(given), result)
    np.testing.assert_array_equal(result.numpy(), given.transpose(0, 2, 1))


def test_a_copy_that_begins_elsewhere_is_left_to_other_rules() -> None:
    square = te.placeholder(int64_sizes((64, 64)), "float32", name="x")
    pair = te.placeholder(int64_sizes((2, 32, 32)), "float32", name="x")
    backwards = te.compute(int64_sizes((64, 64)), lambda i, j: square[63 - j, i])
    second_twice = te.compute(int64_sizes((2, 32, 32)), lambda _, i, j: pair[1, j, i])
    nothing = te.placeholder(int64_sizes((0, 32, 32)), "float32", name="x")
    for x, result in (
        (square, backwards),
        (pair, second_twice),
        (nothing, topi.transpose(nothing, (0, 2, 1))),
    ):
        func = te.create_prim_func([x, result], index_dtype_override="int64")
        assert write_transpose(func, Machine.of(AVX512)) is None
