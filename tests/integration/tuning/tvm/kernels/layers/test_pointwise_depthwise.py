"""How a pointwise and a depthwise convolution in one kernel are cut into tiles."""

from __future__ import annotations

from math import ceil

import pytest

from tunefarm_tuning.tvm.kernels.layers.pointwise_depthwise import PointwiseDepthwise, Tiles


def shares_of(rows: int, batch: int, channels: int, cores: int) -> list[int]:
    """Return how many rows of 16 channels each core computes, as TVM shares a loop: so many iterations in a row."""
    convolutions = PointwiseDepthwise(
        batch=batch,
        image=(rows, 38, 64),
        channels=channels,
        kernel=(5, 5),
        strides=(1, 1),
        padding=(2, 2, 2, 2),
    )
    tiles = Tiles.of(convolutions, lanes=8, registers=16, second_cache_bytes=1 << 18, cores=cores)
    assert tiles is not None
    groups = channels // tiles.width // tiles.panels
    chunks = [min(tiles.rows, rows - first) for first in range(0, rows, tiles.rows)]
    loop = [tiles.panels * size for _ in range(batch) for size in chunks for _ in range(groups)]
    share = ceil(len(loop) / cores)
    return [sum(loop[begin : begin + share]) for begin in range(0, len(loop), share)]


@pytest.mark.parametrize(
    ("rows", "batch", "channels", "cores"),
    [
        (50, 1, 256, 2),
        (100, 1, 128, 2),
        (56, 1, 144, 8),
        (112, 3, 96, 4),
        (50, 1, 1024, 2),
        (49, 2, 64, 2),
        (30, 1, 32, 1),
    ],
)
def test_cores_have_equal_shares(rows: int, batch: int, channels: int, cores: int) -> None:
    shares = shares_of(rows, batch, channels, cores)
    assert len(shares) == cores
    assert max(shares) <= 1.1 * sum(shares) / cores


def test_rows_are_computed_twice_only_between_cores() -> None:
    assert shares_of(50, 1, 256, 2) == [25 * 16, 25 * 16]
    assert shares_of(50, 2, 256, 2) == [50 * 16, 50 * 16]
