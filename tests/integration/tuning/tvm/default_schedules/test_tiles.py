"""The tiles that default schedules choose for CPUs: they fit into registers and into sets of the cache."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from llvm_cpus import cpus_of
from scheduled_networks import (
    ARM,
    AVX2,
    AVX512,
    HOST,
    NETS,
    Shape,
    conv,
    kernels_of,
)

from tunefarm_tuning.target.cores import _BY_NAME, ANY_ARM, FOUR_PIPES, IN_ORDER, TWO_PIPES, Core
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.cpu.dot_tiles import choose_tile
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import choose_register_tile
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage


def access(strides: Shape, elements: int) -> Access:
    return Access(buffer="", dtype="float32", elements=elements, strides=tuple(strides), near=())


@pytest.mark.parametrize("name", ["conv-3x3", "conv-groups-of-sixteen"])
def test_convolutions_keep_their_results_in_registers(name: str, tmp_path: Path) -> None:
    (kernel,) = (
        candidate for candidate in kernels_of(NETS[name], tmp_path, HOST) if "conv" in candidate.name
    )
    text = default_schedule(kernel.module["main"], HOST).script()
    assert 'scope="local"' in text
    assert "T.vectorized" in text
    assert "T.unroll" in text


@pytest.mark.parametrize("channels", [512, 2048])
def test_tiles_for_sixteen_registers_share_factors_among_vectors(channels: int) -> None:
    """A row of a tile costs a load there: of seven pixels, seven rows by one vector have one for each product."""
    stage = Stage(
        extents=(7, 7, 512, channels),
        reduces=(False, False, False, True),
        reads=(
            access((7 * channels, channels, 0, 1), 49 * channels),
            access((0, 0, 1, 512), 512 * channels),
        ),
        writes=(access((7 * 512, 512, 1, 0), 49 * 512),),
        is_costly=False,
        selects=False,
        is_copy=False,
    )
    tile = choose_register_tile(stage, 2, Machine.of(AVX2))
    assert tile.vectors >= 2
    assert tile.vectors * prod(tile.rows) >= 10


@pytest.mark.parametrize(("channels", "rows"), [(256, (2, 8)), (240, (4, 4))])
def test_tiles_do_not_crowd_the_cache(channels: int, rows: tuple[int, int]) -> None:
    """Pixels of 256 channels are 1 KB apart, rows of them 40 KB: sixteen below each other share four sets of the cache."""
    stage = Stage(
        extents=(32, 32, channels, 9, 9),
        reduces=(False, False, False, True, True),
        reads=(
            access((40 * channels, channels, 1, 40 * channels, channels), 40 * 40 * channels),
            access((0, 0, 1, 9 * channels, channels), 81 * channels),
        ),
        writes=(access((32 * channels, channels, 1, 0, 0), 32 * 32 * channels),),
        is_costly=False,
        selects=False,
        is_copy=False,
    )
    tile = choose_register_tile(stage, 2, Machine(vector_bytes=64, registers=32))
    assert tile.rows == rows


@pytest.mark.parametrize(
    ("channels", "kernel", "target", "unrolled"),
    [
        (48, 3, AVX512, True),
        (48, 7, AVX512, False),  # too much code
        (20, 3, AVX512, False),  # the last channels fill no vector
        (48, 3, AVX2, False),  # too few registers
        (48, 3, ARM, True),  # 32 registers, of which other tiles use 28
        (48, 5, ARM, True),
    ],
)
def test_taps_of_a_depthwise_convolution_share_what_they_read(
    channels: int, kernel: int, target: Target, unrolled: bool, tmp_path: Path
) -> None:
    net = conv((1, channels, 17, 17), channels, kernel, 1, channels)
    (func,) = (kernel.module["main"] for kernel in kernels_of(net, tmp_path, target) if "conv" in kernel.name)
    script = default_schedule(func, target).script()
    assert all(f"for {tap} in T.unroll" in script for tap in ("ry", "rx")) is unrolled


@pytest.mark.parametrize(
    ("columns", "rows", "groups", "steps", "pitches", "tile"),
    [
        (14, 14, 16, 576, (256, 16 << 8), (14, 1, 2)),  # rows lie on the same set of the cache
        (197, 1, 48, 576, (4096, 0), (6, 1, 4)),  # so do all rows of such a matrix: a set has eight ways
        (7, 7, 32, 576, (512, 9 << 9), (7, 1, 2)),  # four vectors of weights would leave no register
        (
            13,
            13,
            63,
            256,
            (1024, 13 << 10),
            (7, 1, 3),
        ),  # 21 vectors of weights would come from the second cache
        (13, 13, 63, 8, (32, 13 << 5), (1, 1, 21)),  # few of them fit into the first
    ],
)
def test_tiles_of_dot_products_fit_into_sets_and_registers(
    columns: int, rows: int, groups: int, steps: int, pitches: tuple[int, int], tile: tuple[int, int, int]
) -> None:
    assert (
        choose_tile(
            columns=columns,
            rows=rows,
            groups=groups,
            steps=steps,
            most_sums=28,
            registers=32,
            pitches=pitches,
            near=48 << 4,
        )
        == tile
    )


@pytest.mark.parametrize("columns", [208, 1152])
def test_wide_weights_are_not_read_anew_for_every_few_rows(columns: int) -> None:
    stage = Stage(
        extents=(96, columns, 384),
        reduces=(False, False, True),
        reads=(access((384, 0, 1), 96 * 384), access((0, 1, columns), 384 * columns)),
        writes=(access((columns, 1, 0), 96 * columns),),
        is_costly=False,
        selects=False,
        is_copy=False,
    )
    tile = choose_register_tile(stage, 1, Machine(vector_bytes=64, registers=32))
    assert tile.rows[0] >= 8


@pytest.mark.parametrize(
    ("core", "tile"),
    [
        (ANY_ARM, (8, 2)),  # a panel of three vectors would be read from the second cache
        (TWO_PIPES, (8, 3)),
        (IN_ORDER, (8, 3)),  # fewer loads for each multiply-add
        (FOUR_PIPES, (8, 3)),  # twenty sums at once
    ],
)
def test_tiles_of_arm_are_for_the_core(core: Core, tile: tuple[int, int]) -> None:
    stage = Stage(
        extents=(128, 768, 768),
        reduces=(False, False, True),
        reads=(access((768, 0, 1), 128 * 768), access((0, 1, 768), 768 * 768)),
        writes=(access((768, 1, 0), 128 * 768),),
        is_costly=False,
        selects=False,
        is_copy=False,
    )
    machine = Machine(vector_bytes=16, registers=core.registers, core=core)
    chosen = choose_register_tile(stage, 1, machine)
    assert (chosen.rows[0], chosen.vectors) == tile


def test_llvm_knows_the_cores_of_the_table() -> None:
    assert set(_BY_NAME) <= {name for name, _, _ in cpus_of("aarch64-linux-gnu")}
