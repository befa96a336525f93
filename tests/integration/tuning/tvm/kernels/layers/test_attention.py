"""The kernel of an attention gives what numpy gives, whatever its tiles and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.kernels.layers.attention import (
    MASKS,
    Attention,
    Step,
    Tiles,
    attention_kernel,
)
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel

HOST = parse_target("host")
FOR_AVX2, FOR_AVX512, FOR_NEON = ((8, 16), (16, 32), (4, 28))  # floats of a vector, registers
SCALED = (Step(operator="multiply", number=0.25),)


def attention_of(
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    steps: tuple[Step, ...] = (),
    *,
    result_heads: tuple[int, ...] | None = None,
    zero_without_keys: bool = False,
) -> Attention:
    heads = query[:-2] if result_heads is None else result_heads
    return Attention(
        query=query,
        key=key,
        value=value,
        steps=steps,
        result_heads=heads,
        zero_without_keys=zero_without_keys,
    )


def added(*shape: int, heads: tuple[int, ...] = (2, 3)) -> Step:
    return Step(operator="add", shape=shape, heads=heads)


def tiles_of(attention: Attention, machine: tuple[int, int], cache_bytes: int = 1 << 17) -> Tiles:
    lanes, registers = machine
    return Tiles.of(attention, lanes=lanes, registers=registers, second_cache_bytes=cache_bytes)


def outputs(attention: Attention, tiles: Tiles, arrays: list[NDArray[Any]], folder: Path) -> NDArray[Any]:
    path = folder / "kernel.so"
    kernel = PackedKernel(func=attention_kernel(attention, tiles), packings={})
    build_kernel(kernel, HOST, path)
    result = np.full(attention.result, np.nan, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, result)]
    tvm.runtime.load_module(str(path))["main"](*tensors)
    return tensors[-1].numpy()


def expected(attention: Attention, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    query, key, value = (array.astype(np.float64) for array in arrays[:3])
    operands = arrays[3:]
    scores = query @ key
    for step in attention.steps:
        scores = scores.reshape(*(step.heads or attention.query[:-2]), *scores.shape[-2:])
        operand = step.number if step.shape is None else operands.pop(0)
        if step.operator == "replace":
            scores = np.where(operand, step.number, scores)
        elif step.operator == "keep":
            scores = np.where(operand, scores, step.number)
        else:
            scores = getattr(np, step.operator)(scores, operand)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares = powers / powers.sum(axis=-1, keepdims=True)
    if attention.zero_without_keys:
        shares = np.nan_to_num(shares)
    return shares.reshape(*attention.result_heads, *scores.shape[-2:]) @ value


def inputs(attention: Attention) -> list[NDArray[Any]]:
    rng = np.random.default_rng(7)
    shapes = (attention.query, attention.key, attention.value)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for step in attention.steps:
        if step.shape is not None:
            values = rng.standard_normal(step.shape)
            arrays.append(values > 0 if step.operator in MASKS else values.astype(np.float32))
    return arrays


@pytest.mark.parametrize("machine", [FOR_AVX2, FOR_AVX512, FOR_NEON], ids=["avx2", "avx512", "neon"])
@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((2, 3, 131, 24), (2, 3, 24, 77), (2, 3, 77, 40)),
        ((1, 48, 64), (1, 64, 256), (1, 256, 64)),
        ((3, 5, 8), (3, 8, 9), (3, 9, 5)),  # fewer rows, keys and columns than a tile has
        ((61, 16), (16, 300), (300, 33)),  # no heads
        ((2, 4, 50, 16), (2, 1, 16, 64), (1, 64, 16)),  # heads share keys, and all of them values
    ],
    ids=["tails", "whole", "small", "flat", "shared"],
)
def test_shapes(
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    machine: tuple[int, int],
    tmp_path: Path,
) -> None:
    attention = attention_of(query, key, value, SCALED)
    arrays = inputs(attention)
    given = outputs(attention, tiles_of(attention, machine), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "steps",
    [
        (Step(operator="divide", number=4.0), added(2, 1, 1, 70)),
        (added(30, 70), Step(operator="multiply", shape=(3, 1, 1), heads=(2, 3))),
        (Step(operator="subtract", shape=(70,), heads=(2, 3)), Step(operator="multiply", number=0.5)),
        (added(1, 3, 30, 70),),
        (added(6, 30, 70, heads=(6,)), added(3, 30, 1)),
        (Step(operator="replace", number=-1e4, shape=(2, 1, 30, 70), heads=(2, 3)),),
        (Step(operator="keep", number=-np.inf, shape=(30, 70), heads=(2, 3)), SCALED[0]),
    ],
    ids=["of keys", "of rows and heads", "one dimension", "of each score", "other heads", "replace", "keep"],
)
def test_steps(steps: tuple[Step, ...], tmp_path: Path) -> None:
    attention = attention_of((2, 3, 30, 8), (2, 3, 8, 70), (2, 3, 70, 16), steps)
    arrays = inputs(attention)
    given = outputs(attention, tiles_of(attention, FOR_AVX2), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=2e-5, atol=2e-6)


def test_the_result_may_have_other_heads(tmp_path: Path) -> None:
    attention = attention_of((6, 30, 8), (6, 8, 70), (3, 70, 16), SCALED, result_heads=(2, 3))
    arrays = inputs(attention)
    given = outputs(attention, tiles_of(attention, FOR_AVX2), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("zero_without_keys", [False, True])
def test_keys_behind_a_mask_do_not_count(zero_without_keys: bool, tmp_path: Path) -> None:
    """Minus infinity leaves a key out; scores far below zero keep their differences, in the tail's lanes, too."""
    attention = attention_of(
        (1, 1, 20, 8),
        (1, 1, 8, 37),
        (1, 1, 37, 8),
        (added(20, 37, heads=(1, 1)),),
        zero_without_keys=zero_without_keys,
    )
    arrays = inputs(attention)
    mask = np.full((20, 37), -200.0, np.float32)
    mask[:, ::3] = -np.inf
    mask[5] = -np.inf
    mask[7, 1] = np.nan
    arrays[3] = mask
    given = outputs(attention, tiles_of(attention, FOR_AVX2), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=1e-3, atol=1e-5)
    assert np.isnan(given[0, 0, [5, 7]]).all() != zero_without_keys, "no key is left, or no number"


def test_the_scores_of_a_block_fit_into_the_cache() -> None:
    attention = attention_of((8, 4096, 40), (8, 40, 4096), (8, 4096, 40))
    tiles = tiles_of(attention, FOR_AVX2, cache_bytes=1 << 18)
    assert tiles.block % tiles.rows == 0
    assert tiles.block * 4096 * 4 <= 1 << 18


@pytest.mark.parametrize("rows", [128, 197, 256, 1500])
def test_few_rows_are_computed_twice(rows: int) -> None:
    attention = attention_of((rows, 64), (64, 256), (256, 64))
    tiles = tiles_of(attention, FOR_AVX2, cache_bytes=1 << 18)
    assert -(-rows // tiles.block) * tiles.block <= 1.07 * rows


@pytest.mark.parametrize(
    ("target", "machine", "stack"),
    [
        ("llvm -mcpu=skylake-avx512", FOR_AVX512, "(%rsp)"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", FOR_NEON, "[sp"),
    ],
    ids=["avx512", "neon"],
)
def test_sums_stay_in_registers(target: str, machine: tuple[int, int], stack: str) -> None:
    attention = attention_of((1, 96, 64), (1, 64, 256), (1, 256, 64))
    tiles = tiles_of(attention, machine)
    module = tvm.IRModule({"main": attention_kernel(attention, tiles).with_attr("global_symbol", "main")})
    assembly = str(tvm.tirx.build(module, tvm_target(parse_target(target))).inspect_source("asm"))
    blocks = [
        block for block in assembly.split(":\n") if block.count("fmadd") + block.count("fmla") >= tiles.rows
    ]
    assert blocks
    assert not any(
        stack in line for block in blocks for line in block.splitlines() if "%zmm" in line or "str" in line
    )
