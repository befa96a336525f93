"""How many results a kernel's innermost loops keep in registers: chosen by counting, without any measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from tunefarm_tuning.tvm.default_schedules.stage import Access, Machine, Stage, itemsize

_FMA_PER_CYCLE = 2.0
_LOADS_PER_CYCLE = 2.0
_FMA_LATENCY_CYCLES = 4.0
_TILE_CYCLES = 24.0  # to clear and to store a tile, and to get going
_TAIL = 1.04  # what the code for a rest costs
_CROWDED = 4.0
_FIRST_CACHE_BYTES = 24 << 10
_CYCLES_FAR = 2.0  # for a vector from the second cache
_SECOND_CACHE_BYTES = 512 << 10  # of one of a megabyte, half: the image is there too
_CYCLES_FARTHER = 2.5  # for one from beyond it
_WAITED = 0.02  # of either, as loads from there are not wholly hidden; more would favour tiles one vector wide, which are slow
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8  # of the smallest first cache that is common


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A register tile: ``rows[0] x rows[1]`` results of `vectors` vectors of `lanes` elements.

    Attributes:
        vector_loop: The loop that vectors run along.
        row_loops: Up to two loops, outer first, along which what was loaded is used again.
        rows: Of each of `row_loops`.
    """

    vector_loop: int
    lanes: int
    vectors: int
    row_loops: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


def vector_loop_of(stage: Stage) -> int | None:
    """Return the loop along which the result, and all that is read, lies side by side; None where there is none."""
    written = stage.writes[0]
    loop = next((one for one in stage.spatial if written.strides[one] == 1 and stage.extents[one] > 1), None)
    if loop is None or any(read.strides[loop] not in (0, 1) for read in stage.reads):
        return None
    return loop


def choose_tile(stage: Stage, loop: int, machine: Machine) -> Tile:
    """Return the tile that should take the fewest cycles.

    Args:
        stage: A reduction.
        loop: Its vector loop.
        machine: Says how many registers there are.
    """
    along = [read for read in stage.reads if read.strides[loop] == 1]
    row_loops = _row_loops(stage, loop, along)
    # A dense convolution goes on along the lines that it reads; of a group's few channels all is read again for each tap.
    again = stage.reads if groups_of(stage, row_loops) else along
    steps = max(1, stage.points // _size(stage, stage.spatial))
    best: tuple[float, Tile] | None = None
    for tile in _tiles(stage, loop, row_loops, machine):
        cycles = _cycles(stage, tile, along, steps)
        if (best is None or cycles < best[0]) and _is_crowded(tile, stage, again):
            cycles *= _CROWDED
        if best is None or cycles < best[0]:
            best = (cycles, tile)
    assert best is not None
    return best[1]


def _row_loops(stage: Stage, loop: int, along: list[Access]) -> tuple[int, ...]:
    """Return the loops along which a vector that was read is used again, or else none."""
    found = [
        one
        for one in stage.spatial
        if one != loop and stage.extents[one] > 1 and any(read.strides[one] == 0 for read in along)
    ]
    return tuple(found[-1:] if groups_of(stage, found) else found[-2:])


def groups_of(stage: Stage, row_loops: Sequence[int]) -> list[int]:
    """Return the loops over groups of channels, which other weights belong to: within a row of tiles, not around all of them.

    The next group's channels of a pixel lie beside this one's, those of the next pixel far away.
    """
    written = stage.writes[0].strides
    rows = [written[one] or 0 for one in row_loops]
    return [
        one
        for one in stage.spatial
        if one not in row_loops
        and stage.extents[one] > 1
        and rows
        and 1 < (written[one] or 0) < min(rows)
        and all(read.strides[one] != 0 for read in stage.reads)
    ]


def _tiles(stage: Stage, loop: int, row_loops: tuple[int, ...], machine: Machine) -> Iterator[Tile]:
    most_lanes = machine.lanes(stage.writes[0].dtype)
    registers = machine.registers
    if any(loop in read.near for read in stage.reads):
        registers //= 2  # what is shuffled is kept for the next shuffle
    extent = stage.extents[loop]
    extents = [stage.extents[one] for one in row_loops]
    whole = loop in stage.shared
    for lanes in _dividing(extent, most_lanes) if whole else _powers(extent, most_lanes):
        for vectors in range(1, min(16, ceil(extent / lanes)) + 1):
            if whole and extent % (lanes * vectors):
                continue
            for rows in _rows(extents, registers, vectors):
                yield Tile(vector_loop=loop, lanes=lanes, vectors=vectors, row_loops=row_loops, rows=rows)


def _powers(extent: int, most_lanes: int) -> Iterator[int]:
    lanes = most_lanes
    while lanes >= min(most_lanes, 4):
        if lanes <= max(4, extent):
            yield lanes
        lanes //= 2


def _dividing(extent: int, most_lanes: int) -> Iterator[int]:
    """Yield the powers of two that divide a size, or else its largest divisor that is no more than a vector, or two."""
    found = [lanes for lanes in _powers(extent, most_lanes) if extent % lanes == 0]
    others = [one for one in range(1, 2 * most_lanes + 1) if extent % one == 0]
    yield from found or [max((one for one in others if 4 <= one <= most_lanes), default=others[-1])]


def _rows(extents: list[int], registers: int, vectors: int) -> Iterator[tuple[int, ...]]:
    most = (registers - 1 - min(vectors, 4)) // vectors
    if not extents:
        if most >= 1:
            yield ()
        return
    for last in range(1, min(extents[-1], most) + 1):
        if len(extents) == 1:
            yield (last,)
            continue
        for first in range(1, min(extents[0], most // last) + 1):
            yield (first, last)


def _cycles(stage: Stage, tile: Tile, along: list[Access], steps: int) -> float:
    """Estimate the cycles of all tiles: those of the arithmetic, of the loads, or of waiting for results."""
    rows = 1
    for one in tile.rows:
        rows *= one
    loads = 0.0
    for read in stage.reads:
        count = 1.0
        for place, size in zip(tile.row_loops, tile.rows, strict=True):
            count *= size if read.strides[place] != 0 else 1
        loads += count * (tile.vectors if read in along else 1)
    results = rows * tile.vectors
    far = 0.0
    for read in along:
        if tile.row_loops and all(read.strides[place] == 0 for place in tile.row_loops):
            # Weights of more sums than the first cache holds come from the second for each tile anew, or from beyond it.
            panel_bytes = steps * tile.width * itemsize(read.dtype)
            if panel_bytes > _FIRST_CACHE_BYTES:
                is_near = panel_bytes <= _SECOND_CACHE_BYTES
                far += tile.vectors * (_CYCLES_FAR if is_near else _CYCLES_FARTHER)
    a_step = max(results / _FMA_PER_CYCLE, loads / _LOADS_PER_CYCLE, _FMA_LATENCY_CYCLES, far)
    a_step += _WAITED * far
    tiles = 1.0
    tail = 1.0
    for place, size in (*zip(tile.row_loops, tile.rows, strict=True), (tile.vector_loop, tile.width)):
        tiles *= ceil(stage.extents[place] / size)
        tail *= 1.0 if stage.extents[place] % size == 0 else _TAIL
    if stage.extents[tile.vector_loop] % tile.lanes:
        tail *= _TAIL**4
    return tiles * (a_step * steps + _TILE_CYCLES) * tail


def _is_crowded(tile: Tile, stage: Stage, again: Iterable[Access]) -> bool:
    """Whether what a tile reads again and again for its sums falls on few places of the cache.

    A depthwise convolution of 256 channels finds the neighbours of a pixel at distances of powers of two.
    """
    inner = [(one, stage.extents[one]) for one in stage.reduction if stage.extents[one] > 1][-1:]
    for read in again:
        if all(read.strides[loop] == 0 for loop in tile.row_loops):
            continue
        places = {0}
        for loop, extent in (*zip(tile.row_loops, tile.rows, strict=True), *inner):
            stride = read.strides[loop]
            if stride is None:
                return False
            places = {place + step * stride for place in places for step in range(extent if stride else 1)}
            if len(places) > _SETS * _WAYS:
                return True
        lines = {place * itemsize(read.dtype) // _LINE_BYTES for place in places}
        if max(Counter(line % _SETS for line in lines).values()) > _WAYS:
            return True
    return False


def _size(stage: Stage, loops: list[int]) -> int:
    count = 1
    for loop in loops:
        count *= stage.extents[loop]
    return count


def read_bytes(access: Access) -> int:
    """Return the size of a tensor."""
    return access.elements * itemsize(access.dtype)
