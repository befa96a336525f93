"""How a sketch for a GPU shares its tiles out: among blocks, threads and shared memory.

Read off the schedule once, beside the knobs; then what a config asks of the GPU is known without TVM: thousands at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import GpuLimits

FloatArray = npt.NDArray[np.float64]

_SPACE_LEVELS = 5
_REDUCTION_LEVELS = 3
_CONTROL_REGISTERS = 24  # addresses, counters: what any kernel has beside its tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A loop that is split by a knob.

    Attributes:
        column: Of the knob in a row.
        reduces: It has the reduction's levels; else those of space.
        unit: Iterations inside of the innermost factor (a tensor core's own tile).
        inner_multiple: What the factors inside of a thread must be a multiple of.
    """

    column: int
    reduces: bool
    unit: int = 1
    inner_multiple: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTile:
    """A part of a tensor that a block keeps in shared memory.

    Attributes:
        dims: For each dimension, outermost first, the tiles that move its index, and how far.
        copies: How many of them a pipeline holds at a time.
        pads: Its rows are padded against bank conflicts.
        whole_rows: Its rows must be whole multiples of so many values.
        static: It is declared, not asked for at launch.
        reads: It is read from memory step by step; else it is the block's result.
    """

    itemsize_bytes: int
    dims: tuple[tuple[tuple[int, int], ...], ...]
    copies: int = 1
    pads: bool = False
    whole_rows: int = 1
    static: bool = True
    reads: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """What a block may have at most; `min_threads` at least."""

    max_threads: int
    min_threads: int
    max_vthreads: int
    max_shared_bytes: int
    max_static_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTiling:
    """A sketch whose space loops are blocks, (virtual) threads and what a thread does.

    Attributes:
        tiles: In the order of the loops.
        block_levels: How many of a space loop's outer levels are blocks; one of threads follows, behind one of virtual
            threads where there are two levels between.
        vthreads: Whether the level before that of threads is one of virtual threads.
        lanes: Threads that each of the threads' level stands for (a warp, of a tensor core's).
        tensor_cores: 0 for none; 1 for ``wmma``, 2 for ``mma`` instructions.
        fetch_columns: Of the knobs that say how wide shared memory is filled.
        unroll_column: Of the knob that says how far loops are unrolled; 0 where there is none.
    """

    tiles: tuple[Tile, ...]
    shared: tuple[SharedTile, ...]
    block_levels: int
    vthreads: bool
    lanes: int
    tensor_cores: int
    fetch_columns: tuple[int, ...]
    unroll_column: int
    accumulator_bytes: int
    limits: BlockLimits
    device: GpuLimits

    def use(self, rows: IntArray, knobs: Sequence[Knob]) -> GpuUse:
        """Return what the configs of some rows of this sketch ask of a GPU."""
        factors = [knobs[one.column - 1].table[rows[:, one.column]].astype(np.float64) for one in self.tiles]
        space = [table for tile, table in zip(self.tiles, factors, strict=True) if not tile.reduces]
        ones = np.ones(len(rows))

        def level(number: int) -> FloatArray:
            return np.prod([table[:, number] for table in space], axis=0) if space else ones

        blocks = np.prod([level(number) for number in range(self.block_levels)], axis=0) * ones
        vthreads = level(1) if self.vthreads else ones
        in_block, in_thread = [], []
        rows_fit = np.ones(len(rows), dtype=np.bool_)
        for tile, table in zip(self.tiles, factors, strict=True):
            first = 1 if tile.reduces else self.block_levels
            in_block.append(tile.unit * table[:, first:].prod(axis=1))
            inner = table[:, 2 if tile.reduces else 3 :].prod(axis=1)
            in_thread.append(tile.unit * inner)
            rows_fit &= inner % tile.inner_multiple == 0
        shared = []
        for one in self.shared:
            size, last = shared_tile_size(one, in_block)
            shared.append(size)
            rows_fit &= last % one.whole_rows == 0
        results = np.prod(
            [extent for tile, extent in zip(self.tiles, in_thread, strict=True) if not tile.reduces], axis=0
        )
        work = np.prod(in_block, axis=0) if in_block else ones
        return GpuUse(
            blocks=blocks,
            vthreads=vthreads,
            threads=level(2) * self.lanes,
            shared_bytes=np.sum(shared, axis=0) if shared else 0 * ones,
            static_bytes=np.sum(
                [size for size, one in zip(shared, self.shared, strict=True) if one.static], axis=0
            )
            * ones,
            read_bytes=np.sum(
                [size / one.copies for size, one in zip(shared, self.shared, strict=True) if one.reads],
                axis=0,
            )
            * ones,
            registers=_CONTROL_REGISTERS
            + results * vthreads / (self.lanes if self.tensor_cores else 1) * self.accumulator_bytes / 4,
            work=work,
            rows_fit=rows_fit,
        )

    def fits(self, rows: IntArray, knobs: Sequence[Knob]) -> npt.NDArray[np.bool_]:
        """Return which rows of this sketch can be legal: what they ask for is there. Shape ``(n,)``."""
        use, limits = self.use(rows, knobs), self.limits
        return (
            (use.threads >= limits.min_threads)
            & (use.threads <= limits.max_threads)
            & (use.vthreads <= limits.max_vthreads)
            & (use.shared_bytes <= limits.max_shared_bytes)
            & (use.static_bytes <= limits.max_static_bytes)
            & use.rows_fit
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], num_knobs: int) -> GpuTiling:
        """Read what `to_json` wrote of a sketch with so many knobs.

        Raises:
            ValueError: If it is not such an object.
        """
        try:
            made = cls(
                tiles=tuple(Tile(**one) for one in data["tiles"]),
                shared=tuple(
                    SharedTile(
                        **{**one, "dims": tuple(tuple((int(a), int(s)) for a, s in d) for d in one["dims"])}
                    )
                    for one in data["shared"]
                ),
                block_levels=int(data["block_levels"]),
                vthreads=bool(data["vthreads"]),
                lanes=int(data["lanes"]),
                tensor_cores=int(data["tensor_cores"]),
                fetch_columns=tuple(int(one) for one in data["fetch_columns"]),
                unroll_column=int(data["unroll_column"]),
                accumulator_bytes=int(data["accumulator_bytes"]),
                limits=BlockLimits(**data["limits"]),
                device=GpuLimits(**data["device"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a GPU's nest: {str(data)[:80]} ({error})") from error
        columns = [*(one.column for one in made.tiles), *made.fetch_columns, made.unroll_column]
        axes = [axis for one in made.shared for dim in one.dims for axis, _ in dim]
        if not all(0 <= one <= num_knobs for one in columns) or not all(
            0 <= axis < len(made.tiles) for axis in axes
        ):
            raise ValueError(f"not a GPU's nest: {str(data)[:80]} (a knob that is not there)")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What configs ask of a GPU, one entry each.

    Attributes:
        read_bytes: What a block reads into shared memory in one step.
        registers: A guess of those of a thread: its results, and a few.
        work: Multiplications of a block in one such step.
        rows_fit: Whether rows in shared memory, and tiles in threads, are whole.
    """

    blocks: FloatArray
    vthreads: FloatArray
    threads: FloatArray
    shared_bytes: FloatArray
    static_bytes: FloatArray
    read_bytes: FloatArray
    registers: FloatArray
    work: FloatArray
    rows_fit: npt.NDArray[np.bool_]


def shared_tile_size(one: SharedTile, extents: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of a tile in shared memory, and the length of its rows."""
    spans = [1.0 + np.sum([stride * (extents[axis] - 1) for axis, stride in dim], axis=0) for dim in one.dims]
    last = spans[-1] * np.ones_like(extents[0])
    row = last + (8 - last) % 32 if one.pads else last
    size = np.prod(spans[:-1], axis=0) * row if len(spans) > 1 else row
    return size * one.itemsize_bytes * one.copies, last


def num_levels(*, reduces: bool) -> int:
    """Return how many factors a tile has in the structure of all these sketches."""
    return _REDUCTION_LEVELS if reduces else _SPACE_LEVELS


_ROUNDS = 24
_AT_A_TIME = 4096


class _Space(Protocol):
    def fits(self, rows: IntArray) -> npt.NDArray[np.bool_]: ...


def draw_fitting(space: _Space, rows: IntArray, draw: Callable[[int], IntArray]) -> IntArray:
    """Return rows with those that do not fit replaced by others that do, of the same sketches as far as there are any.

    Of a convolution's configs for a GPU one in a hundred fits: the rest ask for too many threads, or too much memory.

    Args:
        space: Whose rows they are.
        rows: Drawn at random, each of a sketch that is as good as any.
        draw: Draws more of them.
    """
    missing = np.flatnonzero(~space.fits(rows))
    found = rows.copy()
    spare = found[:0]
    for _ in range(_ROUNDS):
        if not len(missing):
            return found
        more = draw(_AT_A_TIME)
        more = more[space.fits(more)]
        spare = more if len(more) else spare
        left = []
        for sketch in np.unique(rows[missing, 0]):
            wanted = missing[rows[missing, 0] == sketch]
            fitting = more[more[:, 0] == sketch][: len(wanted)]
            found[wanted[: len(fitting)]] = fitting
            left.append(wanted[len(fitting) :])
        missing = np.concatenate(left)
    if len(spare):  # sketches of which next to nothing fits: take others
        found[missing] = spare[np.arange(len(missing)) % len(spare)]
    return found
