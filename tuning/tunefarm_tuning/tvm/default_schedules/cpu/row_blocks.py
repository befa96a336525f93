"""Let all columns of a product read a block of rows before the next rows, where the rows do not stay in the second cache.

With large weights, all rows are computed for as many columns as a panel has, and read again for the next ones. A convolution of 128 x 128
pixels and 1,024 channels read its 67 MB eight times from memory, though each block of rows could have served all columns from the cache.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, prod

from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import RegisterTile, read_bytes
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage

_LEAST_SAVED = 2.0
"""Least bytes of the input that a byte of weights that is read again has to save."""
_FAIR = 1.05
"""Largest share of a core's work, as a multiple of the mean, that needs no other order of loops."""


def tiles_in_a_block(
    stage: Stage, tile: RegisterTile, weights: Access, machine: Machine, tails: Collection[int]
) -> int:
    """Return how many tiles along the outer loop over rows a block has, so that the second cache holds what they read.

    Args:
        stage: The product.
        tile: Its register tile.
        weights: What all rows read.
        machine: The CPU.
        tails: Loops that the tile does not divide. If the columns are one, threads share the blocks alone, not their columns: then
            each core should have as many.

    Returns:
        A divisor of the number of tiles; 0 if blocks would read no fewer bytes than all rows for a panel of columns.
    """
    axis = next(iter(tile.row_loops), None)
    if axis is None or axis in tails:
        return 0
    tiles, columns = (
        ceil(stage.extents[loop] / size)
        for loop, size in ((axis, tile.rows[0]), (tile.vector_loop, tile.width))
    )
    inputs = [read for read in stage.reads if read.strides[axis] != 0 and read.strides[tile.vector_loop] == 0]
    if not inputs or weights.strides[axis] != 0:
        return 0
    bytes_of_rows = sum(_bytes_of_rows(stage, tile, read) for read in inputs)
    most = max(1.0, machine.core.rows_bytes * tiles / bytes_of_rows)
    cores, images = machine.cores if tile.vector_loop in tails else 1, _images(stage, tile)
    if tiles <= most and (cores == 1 or _unequal(columns, cores) <= _FAIR):
        return 0
    saved = (columns - 1) * bytes_of_rows
    fitting = [
        count
        for count in range(1, tiles + 1)
        if tiles % count == 0
        and count <= most
        and saved >= _LEAST_SAVED * (tiles // count - 1) * read_bytes(weights)
    ]
    together = max(
        fitting, key=lambda count: (-_unequal(images * tiles // count, cores), count), default=tiles
    )
    blocks = _unequal(images * tiles // together, cores)
    if together == tiles or (together == 1 and len(tile.row_loops) == 1):
        return 0
    fair = _unequal(columns, cores) * (1.0 if tiles <= most else _FAIR**2)
    return together if blocks <= fair else 0


def are_columns_fairer(stage: Stage, tile: RegisterTile, machine: Machine, tails: Collection[int]) -> bool:
    """Return whether a loop over columns, with a tail and so alone, gives cores more equal shares than one over the rows of tiles."""
    if len(tile.row_loops) < 2 or tile.vector_loop not in tails:
        return False
    rows = _images(stage, tile) * ceil(stage.extents[tile.row_loops[0]] / tile.rows[0])
    columns = ceil(stage.extents[tile.vector_loop] / tile.width)
    return _unequal(rows, machine.cores) > _FAIR * _unequal(columns, machine.cores)


def _images(stage: Stage, tile: RegisterTile) -> int:
    """Return how often all rows and columns are computed: for each image, head or group."""
    tiled = (*tile.row_loops, tile.vector_loop)
    return prod(stage.extents[axis] for axis in stage.spatial if axis not in tiled)


def _unequal(count: int, cores: int) -> float:
    """Return how much of a loop's work the core that has most of it does, as a multiple of the mean."""
    return ceil(count / cores) * cores / count


def _bytes_of_rows(stage: Stage, tile: RegisterTile, read: Access) -> float:
    """Return the bytes that all rows read of a tensor, of one image, head or group alone."""
    others = [
        stage.extents[loop]
        for loop in stage.spatial
        if loop not in (*tile.row_loops, tile.vector_loop) and read.strides[loop] != 0
    ]
    return read_bytes(read) / prod(others)
