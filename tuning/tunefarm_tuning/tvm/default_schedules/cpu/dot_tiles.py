"""Choose the tile of a dot product (`dot_product`): the sums that stay in registers."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import (
    CROWDED,
    SECOND_CACHE_CYCLES,
    is_on_few_sets,
)

_LATENCY_CYCLES = 4.0
_TILE_CYCLES = 16.0  # cycles to clear and store a tile


def choose_tile(
    *,
    columns: int,
    rows: int,
    groups: int,
    steps: int,
    most_sums: int,
    registers: int,
    pitches: tuple[int, int],
    near: int,
    loads_per_cycle: float = 2.0,
    loads_of_vector: float = 1.0,
) -> tuple[int, int, int]:
    """Return the columns, rows and vectors of channels of the tile that should take the fewest cycles.

    Of tiles that take as many, it is one of few rows: those lie in different pages, and are slower to read.

    Args:
        columns: Of the result.
        rows: Of the result.
        groups: Vectors of channels.
        steps: The instructions for a vector of sums.
        most_sums: Registers for sums.
        registers: All registers.
        pitches: Bytes from one column of the activations to the next, and from one row to the next.
        near: Vectors of weights that the first cache holds.
        loads_per_cycle: Loads of factors in a cycle.
        loads_of_vector: How many of these take as long as that of a vector.
    """

    def cost(tile: tuple[int, int, int]) -> tuple[float, int]:
        column, row, vectors = tile
        results = column * row * vectors
        loaded = column * row + vectors * loads_of_vector
        step_cycles = max(results / 2, loaded / loads_per_cycle, _LATENCY_CYCLES)
        if vectors * steps > near:
            step_cycles = max(step_cycles, vectors * SECOND_CACHE_CYCLES)
        count = ceil(columns / column) * ceil(rows / row) * (groups // vectors)
        cycles = count * (step_cycles * steps + _TILE_CYCLES)
        reads = (x * pitches[0] + y * pitches[1] for x in range(column) for y in range(row))
        return cycles * CROWDED if is_on_few_sets(reads) else cycles, row

    return min(_tiles(columns, rows, groups, most_sums, registers), key=cost)


def _tiles(
    columns: int, rows: int, groups: int, for_sums: int, registers: int
) -> Iterator[tuple[int, int, int]]:
    for vectors in range(1, min(groups, for_sums) + 1):
        if groups % vectors:
            continue
        most = max(
            vectors, min(for_sums, registers - vectors - 1)
        )  # beside a vector of weights for each, and activations
        for column in range(1, min(columns, most // vectors) + 1):
            for row in range(1, min(rows, most // (vectors * column)) + 1):
                yield column, row, vectors
