"""The mapping of a GPU sketch's tiles to blocks, threads and shared memory, and the resources that configs need.

`tvm.space.cuda_tiling` reads a `GpuTiling` off a sketch once. The demands of thousands of configs then follow without TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.core.json_fields import fields_from_json
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import GpuLimits
from tunefarm_tuning.target.gpu_launch import registers_for

FloatArray = npt.NDArray[np.float64]

_SPACE_LEVELS = 5
_REDUCTION_LEVELS = 3
_CONTROL_REGISTERS = 24  # addresses and counters of every kernel
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A loop that is split by a knob.

    Attributes:
        column: Column of the knob in a row.
        reduces: Whether it is a reduction loop, which has fewer levels than a space loop.
        unit: Iterations inside the innermost factor (the tile of a tensor core).
        inner_multiple: The product of the factors inside a thread must be a multiple of this.
    """

    column: int
    reduces: bool
    unit: int = 1
    inner_multiple: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTile:
    """A part of a tensor that a block keeps in shared memory.

    Attributes:
        dims: For each dimension, outermost first, pairs of a tile (its index) and the distance that it moves the index.
        copies: Copies that a software pipeline holds at a time.
        pads: Whether its rows are padded against bank conflicts.
        whole_rows: The length of its rows must be a multiple of this.
        static: Whether it is declared in the kernel; else it is requested at launch.
        reads: Whether it is an input, loaded step by step; else it is the block's result.
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
    """Upper bounds of a block's resources, and the lower bound `min_threads`."""

    max_threads: int
    min_threads: int
    max_vthreads: int
    max_shared_bytes: int
    max_static_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTiling:
    """The mapping of a sketch's space loops to blocks, virtual threads, threads and the work of a thread.

    Attributes:
        block_levels: Number of outer levels of a space loop that are blocks; the third level is threads.
        vthreads: Whether the second level is one of virtual threads.
        lanes: Hardware threads of one iteration of the threads' level (a warp, for tensor cores).
        tensor_cores: 0 for none; 1 for ``wmma``, 2 for ``mma`` instructions.
        fetch_columns: Columns of the knobs for the vector width of loads into shared memory.
        unroll_column: Column of the knob for unrolling; 0 if there is none.
        accumulator_bytes: Size of a result while it is summed.
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
        """Return the resources that configs of this sketch need. Rows: shape ``(n, width)``."""
        factors = [
            knobs[tile.column - 1].table[rows[:, tile.column]].astype(np.float64) for tile in self.tiles
        ]
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
        for tensor in self.shared:
            size, row = shared_tile_size(tensor, in_block)
            shared.append(size)
            rows_fit &= row % tensor.whole_rows == 0
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
                [size for size, tensor in zip(shared, self.shared, strict=True) if tensor.static], axis=0
            )
            * ones,
            read_bytes=np.sum(
                [
                    size / tensor.copies
                    for size, tensor in zip(shared, self.shared, strict=True)
                    if tensor.reads
                ],
                axis=0,
            )
            * ones,
            results=results
            * vthreads
            / (self.lanes if self.tensor_cores else 1)
            * self.accumulator_bytes
            / _REGISTER_BYTES,
            work=work,
            rows_fit=rows_fit,
        )

    def fits(self, rows: IntArray, knobs: Sequence[Knob]) -> npt.NDArray[np.bool_]:
        """Return which rows of this sketch stay within the limits. Shape ``(n,)``.

        A thread's results are summed in registers. If there are more results than registers, each step reads and writes them
        in memory (they *spill*): no such config is a good one.
        """
        use, limits = self.use(rows, knobs), self.limits
        return (
            (use.threads >= limits.min_threads)
            & (use.threads <= limits.max_threads)
            & (use.vthreads <= limits.max_vthreads)
            & (use.shared_bytes <= limits.max_shared_bytes)
            & (use.static_bytes <= limits.max_static_bytes)
            & (use.results <= registers_for(self.device, use.threads))
            & use.rows_fit
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of all attributes."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], num_knobs: int) -> GpuTiling:
        """Read what `to_json` wrote for a sketch with `num_knobs` knobs.

        Raises:
            ValueError: If it is not such an object.
        """
        try:
            tiling = fields_from_json(cls, data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a GPU's tiling: {str(data)[:80]} ({error})") from error
        columns = [*(tile.column for tile in tiling.tiles), *tiling.fetch_columns, tiling.unroll_column]
        axes = [axis for tensor in tiling.shared for dim in tensor.dims for axis, _ in dim]
        if not all(0 <= column <= num_knobs for column in columns) or not all(
            0 <= axis < len(tiling.tiles) for axis in axes
        ):
            raise ValueError(f"not a GPU's tiling: {str(data)[:80]} (a knob that is not there)")
        return tiling


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """Resources of a GPU that configs need; each array has an entry for each config.

    Attributes:
        vthreads: Virtual threads of a thread.
        shared_bytes: Shared memory of a block.
        static_bytes: The part of it that the kernel declares.
        read_bytes: Bytes that a block loads into shared memory in a step of the reduction.
        results: Registers that a thread's results take while they are summed.
        work: Multiplications of a block in one such step.
        rows_fit: Whether the lengths of rows in shared memory, and tiles in threads, are the multiples that they have to be.
    """

    blocks: FloatArray
    vthreads: FloatArray
    threads: FloatArray
    shared_bytes: FloatArray
    static_bytes: FloatArray
    read_bytes: FloatArray
    results: FloatArray
    work: FloatArray
    rows_fit: npt.NDArray[np.bool_]

    @property
    def registers(self) -> FloatArray:
        """An estimate of a thread's registers: its results, and a few for control."""
        return _CONTROL_REGISTERS + self.results


def shared_tile_size(tensor: SharedTile, extents: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of a tensor in shared memory and the elements of its rows; `extents` are those of the tiles in a block."""
    spans = [
        1.0 + np.sum([stride * (extents[axis] - 1) for axis, stride in dim], axis=0) for dim in tensor.dims
    ]
    last = spans[-1] * np.ones_like(extents[0])
    row = last + (8 - last) % 32 if tensor.pads else last
    size = np.prod(spans[:-1], axis=0) * row if len(spans) > 1 else row
    return size * tensor.itemsize_bytes * tensor.copies, last


def num_levels(*, reduces: bool) -> int:
    """Return the number of factors of a tile; all GPU sketches have one structure."""
    return _REDUCTION_LEVELS if reduces else _SPACE_LEVELS


_ROUNDS = 24
_AT_A_TIME = 4096


class _Space(Protocol):
    def fits(self, rows: IntArray) -> npt.NDArray[np.bool_]: ...


def draw_fitting(space: _Space, rows: IntArray, draw: Callable[[int], IntArray]) -> IntArray:
    """Replace rows that do not fit by rows that fit, of the same sketch if possible.

    Of a convolution's configs for a GPU one in a hundred fits: the others ask for too many threads, or too much memory.
    `rows` were drawn at random, shape ``(n, width)``; `draw` draws a number of further rows.
    """
    missing = np.flatnonzero(~space.fits(rows))
    result = rows.copy()
    spare = result[:0]
    for _ in range(_ROUNDS):
        if not len(missing):
            return result
        more = draw(_AT_A_TIME)
        more = more[space.fits(more)]
        spare = more if len(more) else spare
        unfilled = []
        for sketch in np.unique(rows[missing, 0]):
            wanted = missing[rows[missing, 0] == sketch]
            fitting = more[more[:, 0] == sketch][: len(wanted)]
            result[wanted[: len(fitting)]] = fitting
            unfilled.append(wanted[len(fitting) :])
        missing = np.concatenate(unfilled)
    if len(spare):  # in some sketches almost nothing fits: take rows of other sketches
        result[missing] = spare[np.arange(len(missing)) % len(spare)]
    return result
