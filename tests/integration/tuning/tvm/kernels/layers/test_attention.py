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
from tunefarm_tuning.tvm.kernels.layers.attention import Attention, Step, Tiles, attention_kernel
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel

HOST = parse_target("host")
FOR_AVX2, FOR_AVX512, FOR_NEON = ((8, 16), (16, 32), (4, 28))  # floats of a vector, registers
SCALED = (Step(operator="multiply", number=0.25),)


def tiles_of(attention: Attention, machine: tuple[int, int], cache_bytes: int = 1 << 17) -> Tiles:
    lanes, registers = machine
    return Tiles.of(attention, lanes=lanes, registers=registers, second_cache_bytes=cache_bytes)


def outputs(attention: Attention, tiles: Tiles, arrays: list[NDArray[Any]], folder: Path) -> NDArray[Any]:
    path = folder / "kernel.so"
    kernel = PackedKernel(func=attention_kernel(attention, tiles), packings={})
    build_kernel(kernel, HOST, path)
    result = np.full((*attention.query[:-1], attention.value[-1]), np.nan, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, result)]
    tvm.runtime.load_module(str(path))["main"](*tensors)
    return tensors[-1].numpy()


def expected(attention: Attention, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    query, key, value, *operands = (array.astype(np.float64) for array in arrays)
    scores = query @ key
    for step in attention.steps:
        operand = operands.pop(0) if step.number is None else step.number
        scores = getattr(np, step.operator)(scores, operand)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)) @ value


def inputs(attention: Attention) -> list[NDArray[Any]]:
    rng = np.random.default_rng(7)
    tensors = [step.shape for step in attention.steps if step.number is None]
    shapes = (attention.query, attention.key, attention.value, *tensors)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


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
    attention = Attention(query=query, key=key, value=value, steps=SCALED)
    arrays = inputs(attention)
    given = outputs(attention, tiles_of(attention, machine), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "steps",
    [
        (Step(operator="divide", number=4.0), Step(operator="add", shape=(2, 1, 1, 70))),
        (Step(operator="add", shape=(30, 70)), Step(operator="multiply", shape=(3, 1, 1))),
        (Step(operator="subtract", shape=(70,)), Step(operator="multiply", number=0.5)),
        (Step(operator="add", shape=(1, 3, 30, 70)),),
    ],
    ids=["of keys", "of rows and heads", "one dimension", "of each score"],
)
def test_steps(steps: tuple[Step, ...], tmp_path: Path) -> None:
    attention = Attention(query=(2, 3, 30, 8), key=(2, 3, 8, 70), value=(2, 3, 70, 16), steps=steps)
    arrays = inputs(attention)
    given = outputs(attention, tiles_of(attention, FOR_AVX2), arrays, tmp_path)
    np.testing.assert_allclose(given, expected(attention, arrays), rtol=2e-5, atol=2e-6)


def test_keys_behind_a_mask_do_not_count(tmp_path: Path) -> None:
    """Minus infinity leaves a key out; scores far below zero keep their differences, in the tail's lanes, too."""
    attention = Attention(
        query=(1, 1, 20, 8),
        key=(1, 1, 8, 37),
        value=(1, 1, 37, 8),
        steps=(Step(operator="add", shape=(20, 37)),),
    )
    arrays = inputs(attention)
    mask = np.full((20, 37), -200.0, np.float32)
    mask[:, ::3] = -np.inf
    mask[5] = -np.inf
    arrays[3] = mask
    given = outputs(attention, tiles_of(attention, FOR_AVX2), arrays, tmp_path)
    assert np.isnan(given[0, 0, 5]).all(), "no key is left"
    with np.errstate(invalid="ignore"):
        want = expected(attention, arrays)
    rest = [row for row in range(20) if row != 5]
    np.testing.assert_allclose(given[0, 0, rest], want[0, 0, rest], rtol=1e-3, atol=1e-5)


def test_the_scores_of_a_block_fit_into_the_cache() -> None:
    attention = Attention(query=(8, 4096, 40), key=(8, 40, 4096), value=(8, 4096, 40))
    tiles = tiles_of(attention, FOR_AVX2, cache_bytes=1 << 18)
    assert tiles.block % tiles.rows == 0
    assert tiles.block * 4096 * 4 <= 1 << 18


@pytest.mark.parametrize("rows", [128, 197, 256, 1500])
def test_few_rows_are_computed_twice(rows: int) -> None:
    attention = Attention(query=(rows, 64), key=(64, 256), value=(256, 64))
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
    attention = Attention(query=(1, 96, 64), key=(1, 64, 256), value=(1, 256, 64))
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
