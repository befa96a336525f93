"""The kernel of an attention for CPUs: softmax(query x key, scaled, plus a mask) x value, some rows of a head at a time.

As three kernels, each of them writes or reads all scores: 54 MB for 1,500 frames and six heads, which no cache holds. Here a thread
computes the scores of as many rows as the second cache holds, and the results of these rows from them. Keys and values are packed into
panels first, as in a matrix product; the last block of rows begins earlier instead of ending later.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import ATTENTION
from tunefarm_tuning.tvm.kernels.layers.written import DTYPE, argument, float_number, written_kernel

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}
MASKS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "replace": lambda mask, score, number: tirx.Select(mask, number, score),
    "keep": tirx.Select,
}
_ITEM_BYTES = 4
_LEAST = -3.4028234663852886e38
"""The largest of no scores, as in TVM's softmax: a row of minus infinities has no result there either."""
_MOST_VECTORS, _FEWER_VECTORS = 4, 2
"""Vectors of a tile on CPUs with short vectors and many registers, and on others."""
_MOST_TILE_ROWS = 12
_MOST_ROWS = 48
_BLOCK_TILES = 0.15
"""What reading keys and values costs, in tiles."""
_VALUES_BYTES = 8 << 10
"""Of a panel of values, the part that all rows of a block read before the next one: it stays in the first cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is done to scores before the softmax.

    Attributes:
        operator: A key of `OPERATORS`, which takes the score and the other operand, or of `MASKS`, which takes an element of a mask,
            the score, and `number`.
        number: The other operand; None if it is a tensor.
        shape: Of a tensor, which is an argument of the kernel and is broadcast by numpy's rules; None if there is none.
        heads: The leading dimensions of the scores that it is broadcast to.
    """

    operator: str
    number: float | None = None
    shape: tuple[int, ...] | None = None
    heads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """An attention.

    Attributes:
        query: Shape ``[..., rows, size]``.
        key: ``[..., size, keys]``; leading dimensions that are missing or 1 are those of all heads.
        value: ``[..., keys, columns]``, likewise.
        result_heads: The leading dimensions of the result, which are those of as many heads.
        zero_without_keys: Whether the result of a row is 0 where its softmax is not a number: where a mask leaves no key.
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    result_heads: tuple[int, ...]
    zero_without_keys: bool = False

    @property
    def scores(self) -> tuple[int, ...]:
        """The shape of the scores."""
        return (*self.query[:-1], self.key[-1])

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.result_heads, self.query[-2], self.value[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How the kernel is cut.

    Attributes:
        rows: Rows of a tile, whose sums stay in registers.
        width: Its columns, whole vectors.
        block: Rows whose scores are in the cache at a time, whole tiles.
        keys: Keys whose values are in the first cache at a time.
    """

    rows: int
    width: int
    block: int
    keys: int

    @classmethod
    def of(cls, attention: Attention, *, lanes: int, registers: int, second_cache_bytes: int) -> Tiles:
        """Return the tiles for a CPU.

        Args:
            attention: The attention.
            lanes: Floats of a vector.
            registers: Registers for vectors.
            second_cache_bytes: The part of the second cache that scores may take.
        """
        vectors = _MOST_VECTORS if lanes <= _MOST_VECTORS and registers > 16 else _FEWER_VECTORS
        width, all_rows = lanes * vectors, attention.query[-2]
        rows = min((registers - vectors - 1) // vectors, _MOST_TILE_ROWS, all_rows)
        bytes_of_tile = rows * _padded(attention.key[-1], width) * _ITEM_BYTES
        most = max(1, min(second_cache_bytes // bytes_of_tile, _MOST_ROWS // rows, all_rows // rows))
        of_all_rows = -(-all_rows // rows)
        # The last block computes some rows again; each block reads all keys and values again.
        tiles = min(range(1, most + 1), key=lambda count: -(-of_all_rows // count) * (count + _BLOCK_TILES))
        return cls(rows=rows, width=width, block=rows * tiles, keys=_VALUES_BYTES // (width * _ITEM_BYTES))


def attention_kernel(attention: Attention, tiles: Tiles) -> tirx.PrimFunc:
    """Return the kernel; its arguments are query, key, value, the tensors of the steps, and the result ``[..., rows, columns]``."""
    return written_kernel("attention", ATTENTION, lambda: _Writer(attention, tiles))


class _Writer:
    """Writes the kernel, within TVM's builder."""

    def __init__(self, attention: Attention, tiles: Tiles) -> None:
        self._steps, self._tiles = attention.steps, tiles
        self._heads, self._result_heads = attention.query[:-2], attention.result_heads
        self._zero_without_keys = attention.zero_without_keys
        self._rows, self._size = attention.query[-2:]
        self._keys, self._columns = attention.value[-2:]
        self._query = argument("query", attention.query)
        self._key = argument("key", attention.key)
        self._value = argument("value", attention.value)
        self._tensors = [
            None
            if step.shape is None
            else argument(f"operand{position}", step.shape, "bool" if step.operator in MASKS else DTYPE)
            for position, step in enumerate(attention.steps)
        ]
        tensors = [tensor for tensor in self._tensors if tensor is not None]
        self.inputs = [self._query, self._key, self._value, *tensors]
        self.result = argument("result", attention.result)

    def write(self) -> None:
        """Write the loops over all heads, and over the blocks of their rows."""
        tiles, heads = self._tiles, prod(self._heads)
        width, blocks = tiles.width, -(-self._rows // tiles.block)
        keys, columns = _padded(self._keys, width), _padded(self._columns, width)
        self._packed_key = _buffer((heads, keys // width, self._size, width))
        self._packed_value = _buffer((heads, columns // width, self._keys, width))
        self._scores = _buffer((tiles.block, keys))
        self._sums = _buffer((tiles.block,))
        self._products = _buffer((tiles.block, columns))
        with T.parallel(heads) as head:
            self._pack(self._key, self._packed_key, head, self._heads)
            self._pack(self._value, self._packed_value, head, self._result_heads)
        with T.parallel(heads * blocks) as number:
            head = number // blocks
            first = tirx.min(number % blocks * tiles.block, self._rows - tiles.block)
            self._write_scores(head, first)
            self._write_exponentials()
            self._write_products(head)
            self._write_results(head, first)

    def _pack(self, source: Any, packed: Any, head: Any, heads: tuple[int, ...]) -> None:
        """Copy a head's matrix into panels as wide as a tile, the last of them filled up with zeros."""
        width, rows = self._tiles.width, int(source.shape[-2])
        at = _of_head(source, head, heads)
        panels, rest = divmod(int(source.shape[-1]), width)
        if panels:
            with T.serial(panels) as panel, T.serial(rows) as row, T.vectorized(width) as lane:
                T.buffer_store(packed, source[(*at, row, panel * width + lane)], [head, panel, row, lane])
        if rest:
            with T.serial(rows) as row:
                with T.serial(rest) as lane:
                    T.buffer_store(
                        packed, source[(*at, row, panels * width + lane)], [head, panels, row, lane]
                    )
                with T.serial(width - rest) as lane:
                    T.buffer_store(packed, float_number(0), [head, panels, row, rest + lane])

    def _write_scores(self, head: Any, first: Any) -> None:
        """Write the scores of a block of rows; those behind the last key are minus infinity."""
        tiles = self._tiles
        panels, rest = divmod(self._keys, tiles.width)
        for begin, count, columns in ((0, panels, tiles.width), (panels, 1, rest)):
            if count and columns:
                with T.serial(count) as panel, T.serial(tiles.block // tiles.rows) as tile:
                    self._write_tile_of_scores(head, first, begin + panel, tile * tiles.rows, columns)

    def _write_tile_of_scores(self, head: Any, first: Any, panel: Any, begin: Any, columns: int) -> None:
        width, at = self._tiles.width, _of_head(self._query, head, self._heads)

        def products(row: Any, lane: Any, k: Any) -> Any:
            return self._query[(*at, first + begin + row, k)] * self._packed_key[head, panel, k, lane]

        sums = self._sum(self._size, products, lambda _row, _lane: float_number(0))

        def keep(row: Any, lane: Any) -> None:
            score = self._after_steps(sums[row, lane], head, first + begin + row, panel * width + lane)
            T.buffer_store(self._scores, score, [begin + row, panel * width + lane])

        if columns == width:
            self._for_each_lane(keep)
            return
        with T.unroll(self._tiles.rows) as row:
            with T.serial(columns) as lane:
                keep(row, lane)
            with T.serial(width - columns) as lane:
                T.buffer_store(
                    self._scores, float_number(float("-inf")), [begin + row, panel * width + columns + lane]
                )

    def _after_steps(self, score: Any, head: Any, row: Any, key: Any) -> Any:
        for step, tensor in zip(self._steps, self._tensors, strict=True):
            number = None if step.number is None else float_number(step.number)
            element = None if tensor is None else _element(tensor, head, step.heads, row, key)
            if step.operator in MASKS:
                score = MASKS[step.operator](element, score, number)
            else:
                score = OPERATORS[step.operator](score, number if element is None else element)
        return score

    def _write_exponentials(self) -> None:
        """Replace scores by their exponentials, and write the sum of each row."""
        width, panels = self._tiles.width, -(-self._keys // self._tiles.width)
        most, total = _buffer((width,)), _buffer((width,))
        with T.serial(self._tiles.block) as row:
            with T.vectorized(width) as lane:
                T.buffer_store(most, float_number(_LEAST), [lane])
            with T.serial(panels) as panel, T.vectorized(width) as lane:
                T.buffer_store(most, tirx.max(most[lane], self._scores[row, panel * width + lane]), [lane])
            self._fold(most, row, tirx.max)
            with T.vectorized(width) as lane:
                T.buffer_store(total, float_number(0), [lane])
            with T.serial(panels) as panel:
                with T.vectorized(width) as lane:
                    at = [row, panel * width + lane]
                    T.buffer_store(self._scores, tirx.exp(self._scores[tuple(at)] - self._sums[row]), at)
                with T.vectorized(width) as lane:
                    T.buffer_store(total, total[lane] + self._scores[row, panel * width + lane], [lane])
            self._fold(total, row, operator.add)

    def _fold(self, lanes: Any, row: Any, combine: Callable[[Any, Any], Any]) -> None:
        """Combine the lanes of a vector into the number of a row."""
        count = self._tiles.width
        while count % 2 == 0:
            count //= 2
            with T.vectorized(count) as lane:
                T.buffer_store(lanes, combine(lanes[lane], lanes[count + lane]), [lane])
        T.buffer_store(self._sums, lanes[0], [row])

    def _write_products(self, head: Any) -> None:
        """Multiply exponentials and values, some keys after the other."""
        pieces, rest = divmod(self._keys, self._tiles.keys)
        if pieces:
            self._add_products(head, 0, self._tiles.keys, begins=True)
        if pieces > 1:
            with T.serial(pieces - 1) as piece:
                self._add_products(head, (piece + 1) * self._tiles.keys, self._tiles.keys, begins=False)
        if rest:
            self._add_products(head, pieces * self._tiles.keys, rest, begins=not pieces)

    def _add_products(self, head: Any, first: Any, count: int, *, begins: bool) -> None:
        tiles, products = self._tiles, self._products
        panels = self._packed_value.shape[1]
        with T.serial(panels) as panel, T.serial(tiles.block // tiles.rows) as tile:

            def at(row: Any, lane: Any) -> list[Any]:
                return [tile * tiles.rows + row, panel * tiles.width + lane]

            sums = self._sum(
                count,
                lambda row, lane, k: (
                    self._scores[tile * tiles.rows + row, first + k]
                    * self._packed_value[head, panel, first + k, lane]
                ),
                lambda row, lane: float_number(0) if begins else products[tuple(at(row, lane))],
            )
            self._for_each_lane(lambda row, lane: T.buffer_store(products, sums[row, lane], at(row, lane)))

    def _write_results(self, head: Any, first: Any) -> None:
        at, width = _of_head(self.result, head, self._result_heads), self._tiles.width
        panels, rest = divmod(self._columns, width)

        def write(row: Any, column: Any) -> None:
            result = self._products[row, column] / self._sums[row]
            if self._zero_without_keys:
                has_none = tirx.any(tirx.isnan(self._sums[row]), self._sums[row] <= float_number(0))
                result = tirx.Select(has_none, float_number(0), result)
            T.buffer_store(self.result, result, [*at, first + row, column])

        with T.serial(self._tiles.block) as row:
            if panels:
                with T.serial(panels) as panel, T.vectorized(width) as lane:
                    write(row, panel * width + lane)
            if rest:
                with T.vectorized(rest) as lane:
                    write(row, panels * width + lane)

    def _sum(
        self, count: int, product: Callable[[Any, Any, Any], Any], start: Callable[[Any, Any], Any]
    ) -> Any:
        """Add products of a row, a column and one of `count` numbers to a start, a tile of sums in registers; return these."""
        tiles = self._tiles
        sums = T.sblock_alloc_buffer((tiles.rows, tiles.width), DTYPE, scope="local")
        self._for_each_lane(lambda row, lane: T.buffer_store(sums, start(row, lane), [row, lane]))
        with T.serial(count) as k:
            self._for_each_lane(
                lambda row, lane: T.buffer_store(sums, sums[row, lane] + product(row, lane, k), [row, lane])
            )
        return sums

    def _for_each_lane(self, body: Callable[[Any, Any], None]) -> None:
        with T.unroll(self._tiles.rows) as row, T.vectorized(self._tiles.width) as lane:
            body(row, lane)


def _of_head(tensor: Any, head: Any, heads: Sequence[int]) -> list[Any]:
    """Return the indices of a head in the dimensions of a tensor before its last two, which are broadcast to `heads`."""
    sizes = [int(size) for size in tensor.shape[: max(0, len(tensor.shape) - 2)]]
    indices: list[Any] = []
    for size, count in zip(reversed(sizes), reversed(heads), strict=False):
        indices.insert(0, head % count if size > 1 else 0)
        head = head // count
    return indices


def _element(tensor: Any, head: Any, heads: Sequence[int], row: Any, key: Any) -> Any:
    """Return the element of a tensor for a score."""
    inner = [
        index if int(size) > 1 else 0 for size, index in zip(reversed(tensor.shape), (key, row), strict=False)
    ]
    return tensor[(*_of_head(tensor, head, heads), *reversed(inner))]


def _buffer(shape: Sequence[int]) -> Any:
    return T.sblock_alloc_buffer(shape, DTYPE)


def _padded(count: int, width: int) -> int:
    return -(-count // width) * width
