"""Choose the register tile of a reduction (the results that stay in registers) by estimated cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, itemsize

_TILE_CYCLES = 24.0  # cycles to clear and store a tile, and to start its loops
_TAIL = 1.04  # factor on the cycles for each loop with a tail
CROWDED = 4.0  # factor on the cycles of a tile whose reads fall on few sets of the cache
_CACHE_BYTES_OF_A_ROW = (
    24 << 10
)  # a product of a single row reads its weights once, and finds none of them near
SECOND_CACHE_CYCLES = 2.0  # cycles for a vector from the second cache
_MEMORY_CYCLES = 2.5  # cycles for a vector from beyond the second cache
_EXPOSED = 0.02
"""Share of these cycles that is not hidden; a larger share would favour tiles of one vector, which are slow."""
_MOST_TAPS = 25
_REGISTERS_FOR_TAPS = 28  # of 32: `Machine.registers` of most Arm cores leaves four to LLVM
_TAP_RESULTS = 16  # registers for results and factors; the other 16 hold what the taps read
_STRIDED_TAP_RESULTS = 12
"""`_TAP_RESULTS` on Arm where neighbouring results share few of what the taps read: with 16, some of it was on the stack."""
_LEAST_LANES = 4
_MAX_OVERLAP = 1 / 5
"""Share of a row that tiles may compute twice where the last tile would else be computed by elements."""
_SHARED_FACTORS = 4
_TIMED_VECTOR_BYTES = 32
"""Vectors of CPUs on which panels of a cache line were timed (benchmarks/results/avx2.md)."""
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8  # size of the smallest common first cache


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """A register tile: ``rows[0] x rows[1]`` results of `vectors` vectors of `lanes` elements.

    Attributes:
        joined: Whether two vectors, each half as long as the CPU's, are computed as one (`joined_vectors`).
        overlaps: Whether the last tile of a row overlaps the one before it (`overlapping_tiles`).
        row_loops: Up to two loops, outer first, along which loaded vectors are used again.
        rows: Results of the tile along each of `row_loops`.
    """

    vector_loop: int
    lanes: int
    vectors: int
    row_loops: tuple[int, ...]
    rows: tuple[int, ...]
    joined: bool = False
    overlaps: bool = False

    @property
    def registers(self) -> int:
        """Registers of a row of results."""
        return _registers_of(self.vectors, joined=self.joined)

    @property
    def width(self) -> int:
        """Results of the tile along the vector loop."""
        return self.lanes * self.vectors


def _registers_of(vectors: int, *, joined: bool) -> int:
    return -(-vectors // 2) if joined else vectors


def vector_loop_of(stage: Stage) -> int | None:
    """Return the loop along which the result is contiguous and every read is contiguous or invariant; None without one."""
    written = stage.writes[0]
    loop = next(
        (axis for axis in stage.spatial if written.strides[axis] == 1 and stage.extents[axis] > 1), None
    )
    if loop is None or any(read.strides[loop] not in (0, 1) for read in stage.reads):
        return None
    return loop


def choose_register_tile(
    stage: Stage, loop: int, machine: Machine, *, may_overlap: bool = False
) -> RegisterTile:
    """Return the register tile of a reduction along its vector loop with the fewest estimated cycles."""
    along = [read for read in stage.reads if read.strides[loop] == 1]
    row_loops = _row_loops(stage, loop, along)
    # A dense convolution continues along the lines that it reads. A group has few channels, and each tap reads all again.
    reread = stage.reads if groups_of(stage, row_loops) else along
    steps = max(1, stage.points // prod(stage.extents[loop] for loop in stage.spatial))
    best: tuple[tuple[float, int], RegisterTile] | None = None
    for tile in _tiles(stage, loop, row_loops, machine, may_overlap=may_overlap):
        # Of tiles that take as long, the squarest: its neighbours read the fewest inputs again. Long along the inner loop, it
        # leaves a thread whole rows of the result, which are the rows that the thread computed of the input.
        cost = (_cycles(stage, tile, along, steps, machine), sum(tile.rows))
        if (best is None or cost < best[0]) and _is_crowded(tile, stage, reread):
            cost = (cost[0] * CROWDED, cost[1])
        if best is None or cost < best[0]:
            best = (cost, tile)
    assert best is not None
    return best[1]


def shares_taps(stage: Stage, loop: int, machine: Machine) -> bool:
    """Return whether to unroll all of a reduction, since neighbouring results read the same elements: a depthwise convolution.

    Then LLVM loads an element once, and converts bytes once, for all taps of a tile. With 16 registers it would not have room for them.
    """
    taps = prod(stage.extents[axis] for axis in stage.reduction)
    lanes = machine.lanes(stage.writes[0].dtype)
    shortest = min(lanes, max(_LEAST_LANES, lanes // 2))
    has_tail = stage.extents[loop] % shortest != 0
    if machine.registers < _REGISTERS_FOR_TAPS or taps > _MOST_TAPS or has_tail:
        return False
    along = all(read.strides[loop] == 1 and loop not in read.near for read in stage.reads)
    return along and bool(_row_loops(stage, loop, list(stage.reads)))


def _strides_over_taps(stage: Stage, row_loops: Sequence[int]) -> bool:
    """Return whether no step from a result to its neighbour is a step from a tap to the next, as in a convolution with strides."""
    for read in stage.reads:
        taps = {read.strides[axis] for axis in stage.reduction if stage.extents[axis] > 1}
        steps = {read.strides[axis] for axis in row_loops} - {0}
        if steps and taps and not steps & taps:
            return True
    return False


def _row_loops(stage: Stage, loop: int, along: list[Access]) -> tuple[int, ...]:
    """Return up to two loops along which a loaded vector is reused; where sizes are open, those with known distances."""
    reusing = [
        axis
        for axis in stage.spatial
        if axis != loop and stage.extents[axis] > 1 and any(read.strides[axis] == 0 for read in along)
    ]
    written = stage.writes[0].strides
    reusing = [axis for axis in reusing if written[axis] is not None] or reusing
    return tuple(reusing[-1:] if groups_of(stage, reusing) else reusing[-2:])


def groups_of(stage: Stage, row_loops: Sequence[int]) -> list[int]:
    """Return the loops over groups of channels with separate weights.

    They belong inside the rows of tiles: the next group's channels of a pixel lie next to this group's, and those of the next
    pixel far away.
    """
    written = stage.writes[0].strides
    row_strides = [written[axis] or 0 for axis in row_loops]
    return [
        axis
        for axis in stage.spatial
        if axis not in row_loops
        and stage.extents[axis] > 1
        and row_strides
        and 1 < (written[axis] or 0) < min(row_strides)
        and all(read.strides[axis] != 0 for read in stage.reads)
    ]


def _tiles(
    stage: Stage, loop: int, row_loops: tuple[int, ...], machine: Machine, *, may_overlap: bool
) -> Iterator[RegisterTile]:
    most_lanes = machine.lanes(stage.writes[0].dtype)
    registers = machine.registers
    if any(loop in read.near for read in stage.reads):
        registers //= 2  # a shuffle keeps its inputs for the next one
    elif shares_taps(stage, loop, machine):
        is_strided = machine.core.registers and _strides_over_taps(stage, row_loops)
        registers = _STRIDED_TAP_RESULTS if is_strided else _TAP_RESULTS
    extent = stage.extents[loop]
    extents = [stage.extents[axis] for axis in row_loops]
    no_tail = loop in stage.shared
    powers = list(_powers(extent, most_lanes))
    # A vector that the end of the loop cuts is computed by elements: a shorter one that the end does not cut is faster.
    whole = [lanes for lanes in powers if extent % lanes == 0]
    if may_overlap and row_loops and extent % most_lanes:
        most_wasted = extent if whole else extent * _MAX_OVERLAP
        for vectors in _overlapping(extent, most_lanes, machine.core.most_vectors, most_wasted):
            for rows in _rows(extents, registers, vectors):
                yield RegisterTile(
                    vector_loop=loop,
                    lanes=most_lanes,
                    vectors=vectors,
                    row_loops=row_loops,
                    rows=rows,
                    overlaps=True,
                )
    for lanes in _dividing(extent, most_lanes) if no_tail else whole or powers:
        most = machine.core.most_vectors
        is_half = lanes * 2 == most_lanes
        for vectors in range(1, min(most * (2 if is_half else 1), ceil(extent / lanes)) + 1):
            if no_tail and extent % (lanes * vectors):
                continue
            joined = is_half and vectors > 1 and extent % (lanes * vectors) == 0
            if vectors > most and not joined:
                continue
            # Vectors of two lengths share factors in registers, where one vector takes them from memory.
            free = registers - (_SHARED_FACTORS if joined else 0)
            for rows in _rows(extents, free, _registers_of(vectors, joined=joined)):
                yield RegisterTile(
                    vector_loop=loop,
                    lanes=lanes,
                    vectors=vectors,
                    row_loops=row_loops,
                    rows=rows,
                    joined=joined,
                )


def _overlapping(extent: int, lanes: int, most: int, most_wasted: float) -> Iterator[int]:
    """Yield the vectors of tiles that compute no more than so many elements twice; a tile of one vector would load a factor for each product."""
    fitting = extent // lanes
    for vectors in range(min(2, fitting), min(most, fitting) + 1):
        if vectors and -extent % (lanes * vectors) <= most_wasted:
            yield vectors


def _powers(extent: int, most_lanes: int) -> Iterator[int]:
    """Yield the powers of two from a vector down to 4 elements that are no longer than the loop."""
    lanes = most_lanes
    while lanes >= min(most_lanes, _LEAST_LANES):
        if lanes <= max(_LEAST_LANES, extent):
            yield lanes
        lanes //= 2


def _dividing(extent: int, most_lanes: int) -> Iterator[int]:
    """Yield the powers of two that divide an extent; if there are none, its largest divisor within a vector, or 2."""
    powers = [lanes for lanes in _powers(extent, most_lanes) if extent % lanes == 0]
    divisors = [lanes for lanes in range(1, 2 * most_lanes + 1) if extent % lanes == 0]
    yield from powers or [
        max((lanes for lanes in divisors if 4 <= lanes <= most_lanes), default=divisors[-1])
    ]


def _rows(extents: list[int], registers: int, vectors: int) -> Iterator[tuple[int, ...]]:
    """Yield the rows of all tiles that fit into the registers beside a few for factors, the longest along the inner loop first."""
    most = (registers - 1 - min(vectors, 4)) // vectors
    if not extents:
        if most >= 1:
            yield ()
        return
    for last in range(min(extents[-1], most), 0, -1):
        if len(extents) == 1:
            yield (last,)
            continue
        for first in range(1, min(extents[0], most // last) + 1):
            yield (first, last)


def _cycles(stage: Stage, tile: RegisterTile, along: list[Access], steps: int, machine: Machine) -> float:
    """Estimate the cycles of all tiles; each step takes as long as the slowest of arithmetic, loads and latency.

    `along` are the reads that are contiguous along the vector loop; each result takes `steps` iterations.
    """
    core = machine.core
    rows = prod(tile.rows)
    loads = exposed = 0.0
    for read in stage.reads:
        count = 1.0
        for axis, size in zip(tile.row_loops, tile.rows, strict=True):
            count *= size if read.strides[axis] != 0 else 1
        loads += count * (tile.registers * core.loads_of_vector if read in along else 1)
        exposed += count * (
            tile.registers * core.exposed_load_cycles if read in along else core.exposed_factor_cycles
        )
    results = rows * tile.registers
    far = 0.0
    # The load of half a vector from afar takes three quarters of the time of a whole one's.
    full = (1 + tile.width / tile.registers / machine.lanes(stage.writes[0].dtype)) / 2
    for read in along:
        if all(read.strides[axis] == 0 for axis in tile.row_loops):
            # A panel of weights that exceeds the first cache is loaded again for each tile, from the second cache or beyond.
            panel_bytes = steps * tile.width * itemsize(read.dtype)
            if panel_bytes > (core.first_cache_bytes if tile.row_loops else _CACHE_BYTES_OF_A_ROW):
                is_near = panel_bytes <= core.second_cache_bytes
                far += full * tile.registers * (SECOND_CACHE_CYCLES if is_near else _MEMORY_CYCLES)
    arithmetic = results / core.fma_per_cycle + exposed
    step_cycles = max(arithmetic, loads / core.loads_per_cycle, core.fma_latency_cycles, far) + _EXPOSED * far
    tiles = 1.0
    tail = 1.0
    for axis, size in (*zip(tile.row_loops, tile.rows, strict=True), (tile.vector_loop, tile.width)):
        tiles *= ceil(stage.extents[axis] / size)
        is_whole = stage.extents[axis] % size == 0 or (tile.overlaps and axis == tile.vector_loop)
        tail *= 1.0 if is_whole else _TAIL
    if stage.extents[tile.vector_loop] % tile.lanes and not tile.overlaps:
        tail *= _TAIL**4
    return tiles * (step_cycles * steps + _TILE_CYCLES) * tail


def _is_crowded(tile: RegisterTile, stage: Stage, reread: Iterable[Access]) -> bool:
    """Return whether the elements that a tile reads repeatedly fall on few sets of the first cache.

    A depthwise convolution of 256 channels finds the neighbours of a pixel at distances of powers of two.
    """
    inner = [(axis, stage.extents[axis]) for axis in stage.reduction if stage.extents[axis] > 1][-1:]
    for read in reread:
        if all(read.strides[loop] == 0 for loop in tile.row_loops):
            continue
        offsets = {0}
        for loop, extent in (*zip(tile.row_loops, tile.rows, strict=True), *inner):
            stride = read.strides[loop]
            if stride is None:
                return False
            offsets = {start + step * stride for start in offsets for step in range(extent if stride else 1)}
            if len(offsets) > _SETS * _WAYS:
                return True
        if is_on_few_sets(offset * itemsize(read.dtype) for offset in offsets):
            return True
    return False


def is_on_few_sets(addresses: Iterable[int]) -> bool:
    """Return whether some set of the first cache has fewer ways than bytes at these addresses need."""
    lines = {address // _LINE_BYTES for address in addresses}
    return max(Counter(line % _SETS for line in lines).values()) > _WAYS


def is_read_by_tiles(stage: Stage, tile: RegisterTile, read: Access, consumer: Stage) -> bool:
    """Return whether a step goes through a stage's results by tiles: it may take a dimension apart where tiles begin, but join none."""
    sizes = {tile.vector_loop: tile.width, **dict(zip(tile.row_loops, tile.rows, strict=True))}
    written = [stage.writes[0].strides[loop] for loop in stage.spatial]
    known = [stride for stride in read.strides if stride is not None]
    if None in written or len(known) < len(read.strides):  # of sizes that only the run knows, or in no order
        return list(read.strides) == written
    for loop, begin in zip(stage.spatial, written, strict=True):
        if begin is None or stage.extents[loop] == 1:
            continue
        end, size = begin * stage.extents[loop], begin * sizes.get(loop, 1)
        inside = sorted(
            (stride, extent)
            for stride, extent in zip(known, consumer.extents, strict=True)
            if begin <= stride < end and extent > 1
        )
        if [stride for stride, _ in inside] == [begin]:  # all of it, or a crop
            continue
        for stride, extent in inside:
            if stride != begin or (size % stride and stride % size):
                return False
            begin *= extent
        if begin != end:
            return False
    return True


def panel_width(stage: Stage, tile: RegisterTile, machine: Machine) -> int:
    """Return how many columns of weights lie together: a tile's, if they divide all columns, else those of a vector.

    The weights of as few rows as a tile has are read once, from beyond the caches: of several panels at a time, memory brings more than
    of one.
    """
    if stage.extents[tile.vector_loop] % tile.width:
        return tile.lanes
    line = _LINE_BYTES // itemsize(stage.writes[0].dtype)
    rows = zip(tile.row_loops, tile.rows, strict=True)
    if (
        any(stage.extents[axis] > size for axis, size in rows)
        or machine.vector_bytes != _TIMED_VECTOR_BYTES
        or tile.width == line
    ):
        return tile.width
    return tile.lanes if tile.width % line else line


def read_bytes(access: Access) -> int:
    """Return the size of a tensor in bytes."""
    return access.elements * itemsize(access.dtype)
