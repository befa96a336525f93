"""Let all columns of a product read a block of rows before the next rows, where the rows do not stay in the second cache.

With large weights, all rows are computed for as many columns as a panel has, and read again for the next ones. A convolution of 128 x 128
pixels and 1,024 channels read its 67 MB eight times from memory, though each block of rows could have served all columns from the cache.
"""

from __future__ import annotations

from math import ceil, prod

from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import RegisterTile, read_bytes
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage

_LEAST_SAVED = 2.0
"""Least bytes of the input that a byte of weights that is read again has to save."""


def tiles_in_a_block(stage: Stage, tile: RegisterTile, weights: Access, machine: Machine) -> int:
    """Return how many tiles along the outer loop over rows a block has, so that the second cache holds what they read.

    Returns:
        A divisor of the number of tiles; 0 if blocks would read no fewer bytes than all rows for a panel of columns.
    """
    axis = tile.row_loops[0]
    tiles, columns = (
        ceil(stage.extents[loop] / size)
        for loop, size in ((axis, tile.rows[0]), (tile.vector_loop, tile.width))
    )
    inputs = [read for read in stage.reads if read.strides[axis] != 0 and read.strides[tile.vector_loop] == 0]
    if not inputs or weights.strides[axis] != 0:
        return 0
    bytes_of_rows = sum(_bytes_of_rows(stage, tile, read) for read in inputs)
    most = machine.core.second_cache_bytes * tiles / bytes_of_rows
    together = max(count for count in range(1, tiles + 1) if tiles % count == 0 and count <= max(1.0, most))
    if together == tiles or (together == 1 and len(tile.row_loops) == 1):
        return 0
    saved = (columns - 1) * bytes_of_rows
    again = (tiles // together - 1) * read_bytes(weights)
    return together if saved >= _LEAST_SAVED * again else 0


def _bytes_of_rows(stage: Stage, tile: RegisterTile, read: Access) -> float:
    """Return the bytes that all rows read of a tensor, of one image, head or group alone."""
    others = [
        stage.extents[loop]
        for loop in stage.spatial
        if loop not in (*tile.row_loops, tile.vector_loop) and read.strides[loop] != 0
    ]
    return read_bytes(read) / prod(others)
