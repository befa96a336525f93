"""Merge loops over rows of a product's results that memory holds as one: the rows and columns of an image that a 1x1 convolution reads.

Register tiles divide the merged loop better. Of an image of 7 rows of 7 pixels, CPUs with 16 registers for vectors have room for tiles of
six pixels by two vectors, and neither six nor five divide seven: tiles of seven pixels by one vector load a factor for each product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from tvm import tirx

from tunefarm_tuning.tvm.default_schedules.access import Access
from tunefarm_tuning.tvm.default_schedules.cpu.register_tile import (
    choose_register_tile,
    tile_cycles,
    vector_loop_of,
)
from tunefarm_tuning.tvm.default_schedules.stage import Machine, Stage, stage_of
from tunefarm_tuning.tvm.kernels.dot_products import KINDS

_REGISTERS = 16
"""With more, tiles are larger, and what merging gains was not measured."""
_MOST_CYCLES = 0.95
"""Most cycles of the merged loop, as a share of those of two: what tiles read again of their neighbours is not estimated."""


def merge_rows(sch: Any, blocks: list[Any], machine: Machine) -> bool:
    """Merge two loops over rows of each product whose tiles then take fewer cycles. Return False, so that other rules follow."""
    for block in blocks if machine.registers <= _REGISTERS else ():
        stage = stage_of(sch, block)
        if stage is None or stage.is_injective or sch.get(block).name_hint in KINDS:
            continue
        pair = _best_pair(stage, machine)
        if pair is not None and _merges_behind(sch, block, stage, pair):
            _merge(sch, block, pair)
    return False


def _best_pair(stage: Stage, machine: Machine) -> tuple[int, int] | None:
    """Return the two loops, outer first, whose merging saves the most cycles; None if none saves enough."""
    loop = vector_loop_of(stage)
    if (
        loop is None
        or len(stage.writes) != 1
        or stage.shared
        or stage.spatial != [*range(len(stage.spatial))]
    ):
        return None
    least, best = _MOST_CYCLES * _cycles(stage, loop, machine), None
    rows = [axis for axis in stage.spatial if axis != loop and stage.extents[axis] > 1]
    for pair in pairwise(rows):
        if _walks_as_one((*stage.reads, *stage.writes), stage, pair):
            cycles = _cycles(_merged(stage, pair), loop, machine)
            if cycles < least:
                least, best = cycles, pair
    return best


def _cycles(stage: Stage, loop: int, machine: Machine) -> float:
    tile = choose_register_tile(stage, loop, machine)
    tiled = (loop, *tile.row_loops)
    outside = prod(stage.extents[axis] for axis in stage.spatial if axis not in tiled)
    return outside * tile_cycles(stage, tile, machine)


def _walks_as_one(accesses: Sequence[Access], stage: Stage, pair: tuple[int, int]) -> bool:
    """Return whether the last iteration of the inner loop and the first of the next outer one lie as far apart as any two."""
    outer, inner = pair
    strides = [(access.strides[outer], access.strides[inner]) for access in accesses]
    return all(
        far is not None and near is not None and far == near * stage.extents[inner] for far, near in strides
    )


def _merged(stage: Stage, pair: tuple[int, int]) -> Stage:
    extents = list(stage.extents)
    extents[pair[1]] *= extents[pair[0]]
    extents[pair[0]] = 1
    return replace(stage, extents=tuple(extents))


def _merges_behind(sch: Any, block: Any, stage: Stage, pair: tuple[int, int]) -> bool:
    """Return whether what reads the results, if anything does, is one step that goes through them as the product does."""
    consumers = list(sch.get_consumers(block))
    if not consumers:
        return True
    behind = stage_of(sch, consumers[0]) if len(consumers) == 1 else None
    if behind is None or not behind.is_injective:
        return False
    same = behind.extents == tuple(stage.extents[axis] for axis in stage.spatial)
    own = (stage.spatial.index(pair[0]), stage.spatial.index(pair[1])) if same else (0, 0)
    return same and _walks_as_one((*behind.reads, *behind.writes), behind, own)


def _merge(sch: Any, block: Any, pair: tuple[int, int]) -> None:
    """Give the product, its results and the step behind it one loop and one dimension instead of two."""
    if not list(sch.get_consumers(block)):
        sch.cache_write(block, 0, "global")
    (consumer,) = sch.get_consumers(block)
    outer, inner = pair
    axes = list(sch.get(block).iter_vars)
    extent = int(axes[inner].dom.extent)

    def merged(*indices: Any) -> list[Any]:
        indices = (*indices[:inner], indices[outer] * extent + indices[inner], *indices[inner + 1 :])
        return [index for axis, index in enumerate(indices) if axis != outer]

    rank = len(list(sch.get(block).writes[0].region))
    of_all, of_results = (
        tirx.IndexMap.from_func(merged, ndim=ndim, index_dtype="int64") for ndim in (len(axes), rank)
    )
    sch.transform_block_layout(block, of_all)
    sch.transform_layout(block, ("write", 0), of_results)
    sch.transform_block_layout(consumer, of_results)
