"""Schedule reductions whose results are contiguous along a loop: convolutions, matrix products, pools.

A register tile of results stays in registers while the reduction runs. The elementwise stage behind it (the epilogue) works on
the tile. Paddings of depthwise convolutions and pools are computed for some rows of tiles, where the first caches hold them; those
of other convolutions, which all columns read, before all tiles. Large weights are copied or packed into panels: all rows of as many
columns as the tile is wide, contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, log, prod
from typing import Any

from tvm.s_tir.schedule import ScheduleError

from tunefarm_tuning.tvm.default_schedules.access import Access, nominal_size
from tunefarm_tuning.tvm.default_schedules.cpu.elementwise import (
    PARALLEL_POINTS,
    hint_tail,
    reads_indices,
    vectorize_inner,
)
from tunefarm_tuning.tvm.default_schedules.cpu.joined_vectors import join_in_pairs
from tunefarm_tuning.tvm.default_schedules.cpu.overlapping_tiles import may_overlap_tiles, overlap_tiles
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import (
    RegisterTile,
    choose_register_tile,
    groups_of,
    is_read_by_tiles,
    panel_width,
    read_bytes,
    shares_taps,
    vector_loop_of,
)
from tunefarm_tuning.tvm.default_schedules.cpu.row_blocks import are_columns_fairer, tiles_in_a_block
from tunefarm_tuning.tvm.default_schedules.cpu.weight_prefetch import prefetch_weights
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, stage_of
from tunefarm_tuning.tvm.kernels.weight_packing import (
    contiguous_run,
    given_order,
    mark_packing_block,
    may_be_packed,
    panel_order,
)

_NEAR_BYTES = 256 << 10
"""Weights up to this size are read again for each row of the result; larger ones once, a panel at a time."""
_PANEL_USES = 4
"""Least number of tiles that use a panel, so that its copy pays."""
_MAX_PARALLEL = 256
_MAX_DROPPED = 1 / 2
"""Largest share of results that the elementwise stage may leave out: columns that fill up vectors."""
_PARALLEL_SUMS = 4 * PARALLEL_POINTS
_PADDING_BYTES = 64 << 10
"""Most bytes of a padded input that several rows of tiles share, so that fewer of its rows are computed twice."""
_LEAST_PADDINGS = 32
"""Fewest such padded inputs: threads share them."""
_MAX_COPIES = 2.0
"""How often an element of a padded input may be computed within tiles; else all of it is computed once, before them."""


def schedule_tiled_reduction(sch: Any, block: Any, machine: Machine) -> bool:
    """Schedule a reduction whose results are contiguous along a loop; return whether the block is one."""
    stage = stage_of(sch, block)
    if stage is None or stage.is_injective or len(stage.writes) != 1 or reads_indices(stage):
        return False
    loop = vector_loop_of(stage)
    if loop is None or stage.extents[loop] < 2:
        return False
    may_overlap = machine.overlaps and may_overlap_tiles(sch, block, stage, loop, _NEAR_BYTES)
    tile = choose_register_tile(stage, loop, machine, may_overlap=may_overlap)
    _TiledReduction(sch, block, stage, tile, machine).schedule()
    return True


class _TiledReduction:
    """The loops of a reduction around its register tile."""

    def __init__(self, sch: Any, block: Any, stage: Stage, tile: RegisterTile, machine: Machine) -> None:
        self._sch = sch
        self._block = block
        self._stage = stage
        self._tile = tile
        self._machine = machine
        panels = [
            (index, read)
            for index, read in enumerate(stage.reads)
            if read.strides[tile.vector_loop] == 1
            and (
                not tile.row_loops
                or any(read.strides[loop] == 0 for loop in tile.row_loops)
                or self._given_order(index) is not None
            )
        ]
        self._panel: tuple[int, Access] | None = (
            max(panels, key=lambda indexed: read_bytes(indexed[1])) if panels else None
        )
        self._lies_in_panels = False
        self._follow = False  # panels that follow each other as tiles read them
        self._tails: set[int] = set()  # loops that the tile does not divide
        self._drops_columns = False  # behind whole vectors, the last columns of the result are not wanted

    def _given_order(self, index: int) -> Any | None:
        """Return the order in which a weight is given, if the tile's vectors lie side by side in it."""
        source = self._sch.get(self._block).reads[index].source
        order = given_order(self._sch.mod["main"], source)
        if order is None or int(source.shape[-1]) != self._stage.extents[self._tile.vector_loop]:
            return None
        run = contiguous_run(order, [int(size) for size in source.shape])
        return order if run % self._tile.lanes == 0 else None

    def schedule(self) -> None:
        """Split, order, fuse, unroll and vectorise the loops."""
        sch, stage, tile = self._sch, self._stage, self._tile
        loops = list(sch.get_loops(self._block))
        paddings = self._paddings()
        self._lay_out_panel()
        epilogue = self._epilogue()
        inner: list[Any] = []
        outer: dict[int, Any] = {}
        for axis, rows in zip(tile.row_loops, tile.rows, strict=True):
            outer[axis], part = self._split(loops[axis], stage.extents[axis], rows, axis)
            inner.append(part)
        vector_outer, vectors, lanes = self._split_vector(loops[tile.vector_loop])
        outer[tile.vector_loop] = vector_outer
        untiled = [axis for axis in stage.spatial if axis not in outer]
        groups = groups_of(stage, tile.row_loops)
        outer |= {axis: loops[axis] for axis in untiled}
        order = [*(axis for axis in untiled if axis not in groups), *self._outer_order(), *groups]
        sums = [loops[axis] for axis in stage.reduction]
        sch.reorder(*(outer[axis] for axis in order), *sums, *inner, vectors, lanes)
        spatial = [outer[axis] for axis in order]
        self._block_rows(order, spatial)
        inner_loops = self._share_padding(paddings, order, spatial)
        sizes = [nominal_size(sch.get(loop).extent) for loop in spatial]
        first, fused = self._parallel(spatial, order, inner_loops)
        deepest = spatial[-1] if fused < len(spatial) else first
        epilogue = self._place_epilogue(epilogue, deepest)
        self._place_panel(order, spatial, first, fused)
        self._place_paddings(paddings, first, list(zip(order, sizes, strict=True))[:fused])
        unrolled: list[Any] = []
        if any(tile.vector_loop in read.near for read in stage.reads):
            unrolled = sums[-1:]  # the indices of a shuffle must be constants
        elif shares_taps(stage, tile.vector_loop, self._machine):
            unrolled = sums
        for loop in (*unrolled, *inner, vectors):
            sch.unroll(loop)
        sch.vectorize(lanes)
        init = sch.decompose_reduction(self._block, sums[0])
        if tile.overlaps:
            overlap_tiles(sch, [init, self._block, epilogue], stage.extents[tile.vector_loop], tile.width)
        init_loops = list(sch.get_loops(init))[-(len(inner) + 2) :]
        for loop in init_loops[:-1]:
            sch.unroll(loop)
        sch.vectorize(init_loops[-1])
        if tile.joined:
            join_in_pairs(sch, vectors)
            join_in_pairs(sch, init_loops[-2])
        if self._follow and not unrolled:
            tiles = [
                (axis, rows, -(-stage.extents[axis] // rows))
                for axis, rows in zip(tile.row_loops, tile.rows, strict=True)
            ]
            prefetch_weights(sch, self._block, tile.vector_loop, tile.width, tiles)

    def _lay_out_panel(self) -> None:
        """Pack weights panel by panel, as tiles read them, if the compiler may choose their order."""
        if self._panel is None:
            return
        index, _ = self._panel
        source = self._sch.get(self._block).reads[index].source
        order = self._given_order(index)
        if order is not None:
            self._pack(index, order)
            return
        columns, width = nominal_size(source.shape[-1]), panel_width(self._stage, self._tile, self._machine)
        extent = self._stage.extents[self._tile.vector_loop]  # of all columns, or of those of a group
        if columns % extent or extent % width or not may_be_packed(self._sch.mod["main"], source):
            return
        self._pack(index, panel_order(len(source.shape), width))
        self._follow = self._has_large_weights()

    def _pack(self, index: int, order: Any) -> None:
        packed = self._sch.cache_read(self._block, index, "global")
        mark_packing_block(self._sch, packed)
        self._sch.transform_layout(self._block, ("read", index), order)
        self._lies_in_panels = True

    def _split(self, loop: Any, extent: int, size: int, axis: int) -> tuple[Any, Any]:
        outer, inner = self._sch.split(loop, [None, size])
        if extent % size and not (self._tile.overlaps and axis == self._tile.vector_loop):
            self._tails.add(axis)
            hint_tail(self._sch, outer)
        return outer, inner

    def _split_vector(self, loop: Any) -> tuple[Any, Any, Any]:
        tile, extent = self._tile, self._stage.extents[self._tile.vector_loop]
        if extent % tile.lanes:
            outer, inner = self._split(loop, extent, tile.width, tile.vector_loop)
            vectors, lanes = self._sch.split(inner, [tile.vectors, tile.lanes])
            return outer, vectors, lanes
        blocks, lanes = self._sch.split(loop, [None, tile.lanes])
        outer, vectors = self._split(blocks, extent // tile.lanes, tile.vectors, tile.vector_loop)
        if self._drops_columns:
            self._tails.add(tile.vector_loop)
            hint_tail(self._sch, outer)
        return outer, vectors, lanes

    def _outer_order(self) -> list[int]:
        """Return the order of the loops over tiles: columns inside rows for small weights, rows inside columns for large ones."""
        tile = self._tile
        if self._has_large_weights() or are_columns_fairer(self._stage, tile, self._machine, self._tails):
            return [tile.vector_loop, *tile.row_loops]
        return [*tile.row_loops[:-1], tile.vector_loop, *tile.row_loops[-1:]]

    def _has_large_weights(self) -> bool:
        return self._panel is not None and read_bytes(self._panel[1]) > _NEAR_BYTES

    def _block_rows(self, order: list[int], spatial: list[Any]) -> None:
        """Let all columns read a block of rows before the next rows, where that pays; changes `order` and `spatial`."""
        if self._panel is None or not self._lies_in_panels or not self._has_large_weights():
            return
        together = tiles_in_a_block(self._stage, self._tile, self._panel[1], self._machine, self._tails)
        if not together:
            return
        axis = self._tile.row_loops[0]
        self._follow = False  # which tiles would prefetch a panel's weights is not counted by blocks
        position, column = order.index(axis), order.index(self._tile.vector_loop)
        block = spatial[position]
        if together > 1:
            block, spatial[position] = self._sch.split(block, [None, together])
        else:
            del order[position], spatial[position]
        order.insert(column, axis)
        spatial.insert(column, block)
        self._sch.reorder(*spatial)

    def _share_padding(self, paddings: list[tuple[Any, Access]], order: list[int], spatial: list[Any]) -> int:
        """Let rows of tiles share a padding of their columns; return how many loops stay inside of those that threads share.

        Changes `order` and `spatial`: a loop over the rows of tiles that share one comes before the last loop.
        """
        tile = self._tile
        # The tiles of a pool have no rows: its padding is computed for a row of tiles, not for each tile.
        inner = 1 if tile.row_loops or not paddings else 2
        if not paddings or len(tile.row_loops) != 2 or {tile.row_loops[0], tile.vector_loop} & self._tails:
            return inner
        position = order.index(tile.row_loops[0])
        rows = nominal_size(self._sch.get(spatial[position]).extent)
        tiles = prod(
            nominal_size(self._sch.get(loop).extent) for loop in spatial[:-1]
        )  # in each row of tiles
        most = min(_PADDING_BYTES / (read_bytes(paddings[0][1]) / tiles), tiles / _LEAST_PADDINGS)
        together = max(
            (count for count in range(1, rows + 1) if rows % count == 0 and count <= most), default=1
        )
        if together == 1:
            return inner
        spatial[position], within = self._sch.split(spatial[position], [None, together])
        self._sch.reorder(*spatial[position:-1], within, spatial[-1])
        order.insert(-1, tile.row_loops[0])
        spatial.insert(-1, within)
        return inner + 1

    def _paddings(self) -> list[tuple[Any, Access]]:
        """Return the blocks that may be computed with tiles, each with its read."""
        if self._tile.overlaps:
            return []
        reads = [(block, self._read_of_padding(block)) for block in self._sch.get_producers(self._block)]
        return [(block, read) for block, read in reads if read is not None]

    def _read_of_padding(self, block: Any) -> Access | None:
        """Return the read of a padding if each tile reads only the columns that it writes, as in a depthwise convolution."""
        stage, tile, tiled = stage_of(self._sch, block), self._tile, self._stage
        if stage is None or not stage.is_injective or len(list(self._sch.get_consumers(block))) != 1:
            return None
        if stage.is_costly or (tile.row_loops and self._has_large_weights()):
            return None
        windows = [loop for loop in tiled.reduction if tiled.extents[loop] > 1]
        for read in tiled.reads:
            if read.buffer == stage.writes[0].buffer and read.strides[tile.vector_loop] == 1:
                is_alone = all(read.strides[loop] != 0 for loop in tile.row_loops)
                return read if is_alone and all(read.strides[loop] != 1 for loop in windows) else None
        return None

    def _copies(self, padded: Access, outside: Iterable[tuple[int, int]]) -> float:
        """Return how often an element of a padding is computed inside of loops that are given as axis and extent."""
        stage, strides = self._stage, padded.strides
        each = {axis: float(extent) for axis, extent in enumerate(stage.extents)}
        for axis, extent in outside:
            each[axis] /= extent
        if None in strides:
            return inf
        walked = {axis: abs(stride) for axis, stride in enumerate(strides) if stride}
        along = [axis for axis in stage.spatial if axis in walked and axis != self._tile.vector_loop]
        windows: dict[int, list[int]] = {axis: [] for axis in along}
        for loop in stage.reduction if along else ():
            if loop in walked and stage.extents[loop] > 1:
                # along the dimension whose elements lie about as far apart
                windows[min(along, key=lambda axis: abs(log(walked[axis] / walked[loop])))].append(loop)
        copies = 1.0
        for axis, loops in windows.items():
            if each[axis] < stage.extents[axis]:
                span = min(walked[loop] for loop in (axis, *loops)) + (each[axis] - 1) * walked[axis]
                span += sum((stage.extents[loop] - 1) * walked[loop] for loop in loops)
                copies *= span / (each[axis] * walked[axis])
        return copies

    def _parallel(self, spatial: list[Any], order: list[int], inner: int) -> tuple[Any, int]:
        """Fuse loops, but the `inner` last, into one that threads share; return it and the number of fused loops."""
        count, extent = 0, 1
        for axis, loop in zip(order[:-inner] or order[:1], spatial, strict=False):
            if axis in self._tails or (extent >= _MAX_PARALLEL and count):
                break
            extent *= nominal_size(self._sch.get(loop).extent)
            count += 1
        if extent == 1 and count < len(spatial):
            # A loop with a tail stays alone, so that TVM can split the tail off.
            fused = spatial[count]
            count, extent = count + 1, nominal_size(self._sch.get(fused).extent)
        else:
            fused = self._sch.fuse(*spatial[:count]) if count > 1 else spatial[0]
        if self._stage.points >= _PARALLEL_SUMS and extent > 1:
            self._sch.parallel(fused)
        return fused, count

    def _epilogue(self) -> Any | None:
        """Return the consumer block, if it is the only one and reads the results element by element."""
        consumers = list(self._sch.get_consumers(self._block))
        if len(consumers) != 1:
            return None
        stage = stage_of(self._sch, consumers[0])
        written = self._stage.writes[0]
        if stage is None or not stage.is_injective:
            return None
        reads = [read for read in stage.reads if read.buffer == written.buffer]
        if not all(is_read_by_tiles(self._stage, self._tile, read, stage) for read in reads):
            return None
        is_crop = len(reads) == 1 and 1 in reads[0].strides  # not pairs of results, nor every second one
        dropped = written.elements - stage.points
        self._drops_columns = is_crop and 0 < dropped <= written.elements * _MAX_DROPPED
        return consumers[0] if self._drops_columns or stage.points == written.elements else None

    def _place_epilogue(self, epilogue: Any | None, loop: Any) -> Any:
        """Compute the step behind the sums, or a copy of them, in a tile's loop; return its block."""
        sch = self._sch
        if epilogue is not None:
            try:
                sch.reverse_compute_at(epilogue, loop)
            except ScheduleError:
                epilogue = None
        if epilogue is None:
            epilogue = sch.cache_write(self._block, 0, "local")
            sch.reverse_compute_at(epilogue, loop)
        else:
            sch.set_scope(self._block, 0, "local")
        depth = len(list(sch.get_loops(self._block))) - len(self._stage.reduction) - len(self._tile.rows) - 2
        loops = list(sch.get_loops(epilogue))[depth:]
        vectorize_inner(sch, loops, self._tile.lanes, unroll=True, joined=self._tile.joined)
        return epilogue

    def _place_panel(self, order: list[int], spatial: list[Any], first: Any, fused: int) -> None:
        """Copy the weights of a column of tiles into a panel, if many tiles use them."""
        tile, stage, sch = self._tile, self._stage, self._sch
        if self._panel is None or self._lies_in_panels or tile.vector_loop not in order[:-1]:
            return
        index, _ = self._panel
        if not self._has_large_weights():
            return
        depth = order.index(tile.vector_loop)
        loop = first if depth < fused else spatial[depth]
        inside = order[max(fused, depth + 1) :]
        uses = 1
        for axis, rows in zip(tile.row_loops, tile.rows, strict=True):
            uses *= -(-stage.extents[axis] // rows) if axis in inside else 1
        if uses < _PANEL_USES:
            return
        copy = sch.cache_read(self._block, index, "global")
        sch.compute_at(copy, loop)
        loops = list(sch.get_loops(copy))[-len(sch.get(copy).iter_vars) :]
        if tile.overlaps:
            vectorize_inner(sch, loops[-1:], tile.lanes, unroll=True)
            overlap_tiles(sch, [copy], stage.extents[tile.vector_loop], tile.width)
        else:
            vectorize_inner(sch, loops, tile.lanes, unroll=False)

    def _place_paddings(
        self, paddings: list[tuple[Any, Access]], first: Any, outside: list[tuple[int, int]]
    ) -> None:
        """Compute paddings in the loop that threads share, if few of their elements are then computed twice."""
        for block, read in paddings:
            if self._copies(read, outside) > _MAX_COPIES:
                continue
            before = len(list(self._sch.get_loops(block)))
            self._sch.compute_at(block, first)
            loops = list(self._sch.get_loops(block))[-before:]
            vectorize_inner(self._sch, loops, self._machine.lanes(self._stage.writes[0].dtype), unroll=False)
