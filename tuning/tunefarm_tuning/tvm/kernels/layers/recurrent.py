"""Kernels of recurrent layers for CPUs: a kernel runs all steps of an ``LSTM``, ``GRU`` or ``RNN``, with its state in the caches.

Step by step in the graph, a hundred steps would be hundreds of calls and a concatenation of a hundred tensors. The products with
the inputs stay in the graph, as one matrix product over all steps that is tuned. What is left is a matrix times the state, step
after step, bound by the memory of the matrix. The equations are those of ONNX (opset 14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.target.dot_products import BYTE_DOTS
from tunefarm_tuning.tvm.base.tir import CPU_ONLY, IS_SCHEDULED, OPAQUE, whole
from tunefarm_tuning.tvm.kernels.dot_products import BYTES, Array, add_byte_products
from tunefarm_tuning.tvm.kernels.int8_kernels import shifted_zero
from tunefarm_tuning.tvm.kernels.layers.recurrence import RECURRENCES, Recurrence, to_json

_LANES = 16
TILE = 4 * _LANES
"""Columns of the matrix whose sums are in registers."""
_ROWS = 4  # sequences whose sums are in registers
_SHARED_POINTS = 1 << 18
"""Threads share a step with at least this many products: some 15 microseconds of one core, which reads a megabyte meanwhile."""
_SHARED_POINTS_BOTH_WAYS = 1 << 20
"""The same for two directions. With shorter steps each direction has its own thread, and neither waits for the other."""
_LAST_INTEGER = 255  # of 8 bits without a sign


def tiled(matrix: Array) -> Array:
    """Return a matrix ``[columns, hidden]`` as kernels read it: ``[tiles, hidden, columns of a tile]``, padded with zeros."""
    columns, hidden = matrix.shape
    tiles = -(-columns // TILE)
    full = np.zeros((tiles * TILE, hidden), matrix.dtype)
    full[:columns] = matrix
    return np.ascontiguousarray(full.reshape(tiles, TILE, hidden).transpose(0, 2, 1))


def tiled_bytes(matrix: Array) -> Array:
    """Return a `tiled` matrix of int8 as kernels of `byte_lanes` read it: four products of each column side by side.

    Returns:
        ``[tiles, hidden / 4 rounded up, 4 x columns of a tile]``, padded with zeros.
    """
    tiles, hidden, columns = matrix.shape
    full = np.zeros((tiles, _fours(hidden) * BYTES.products, columns), np.int8)
    full[:, :hidden] = matrix
    by_four = full.reshape(tiles, -1, BYTES.products, columns).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(by_four).reshape(tiles, -1, columns * BYTES.products)


def _fours(hidden: int) -> int:
    return -(-hidden // BYTES.products)


def recurrent_kernel(*cells: Recurrence) -> tirx.PrimFunc:
    """Return the kernel of a layer's directions.

    Its arguments, for each direction:

    - the inputs' products with biases ``[steps, batch, gates x hidden]``;
    - a `tiled` matrix for each of `Recurrence.products`; with `byte_lanes` a `tiled_bytes` one, and for each of its columns the
      scale (float) and the sum of its weights (int32), ``[tiles x columns of a tile]``;
    - for `reset_after` the bias of the candidate's product ``[hidden]``; for `peepholes` their vectors ``[3, hidden]``; for
      `ragged` the lengths ``[batch]`` (int32);
    - the first state ``[batch, hidden]``, and an LSTM's first cell.

    Then its results, for each direction: the states of all steps ``[steps, batch, hidden]``, the last state, and an LSTM's
    last cell.
    """
    kind = cells[0].kind
    open_sizes = {
        name: tirx.Var(name, "int64")
        for name in ("steps", "batch")
        if not isinstance(getattr(cells[0], name), int)
    }
    cells = tuple(replace(cell, **open_sizes) for cell in cells)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE, CPU_ONLY: kind})
        if any(cell.rounded for cell in cells):
            T.func_attr({RECURRENCES: to_json(cells)})
        shared_from = _SHARED_POINTS if len(cells) == 1 else _SHARED_POINTS_BOTH_WAYS
        writers = [_Writer(cell, f"_{number}", shared_from) for number, cell in enumerate(cells)]
        for writer in writers:
            writer.take_results()
        with T.sblock("recurrence"):
            T.reads([whole(buffer) for writer in writers for buffer in writer.inputs])
            T.writes([whole(buffer) for writer in writers for buffer in writer.results])
            for writer in writers:
                writer.allocate()
            if len(writers) == 1 or any(writer.shares_steps for writer in writers):
                for writer in writers:
                    writer.write()
            else:
                _write_side_by_side(writers)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _write_side_by_side(writers: Sequence[_Writer]) -> None:
    """Give each direction its own thread, so that they do not wait for each other after every step."""
    with T.parallel(len(writers)) as which:
        for number, writer in enumerate(writers):
            with T.If(which == number), T.Then():
                writer.write()


class _Writer:
    """Writes one direction of a kernel, within TVM's builder.

    The names of its arguments end in `suffix`. Threads share a step of at least `shared_from` products.
    """

    def __init__(self, cell: Recurrence, suffix: str, shared_from: int) -> None:
        self._cell = cell
        self._suffix = suffix
        self._shared_from = shared_from
        state = (cell.batch, cell.hidden)
        self._x = self._argument("x", (cell.steps, cell.batch, cell.gates * cell.hidden))
        self._matrices = [
            self._argument(f"matrix{i}", *self._layout(-(-count * cell.hidden // TILE)))
            for i, count in enumerate(cell.products)
        ]
        self._of_columns = []  # scales and sums of the columns of a matrix of bytes
        if cell.byte_lanes:
            columns = self._matrices[0].shape[0] * TILE
            self._of_columns = [
                self._argument("scales", (columns,)),
                self._argument("weight_sums", (columns,), BYTES.sum_dtype),
            ]
        self._bias = self._argument("bias", (cell.hidden,)) if cell.reset_after else None
        self._peepholes = self._argument("peepholes", (3, cell.hidden)) if cell.peepholes else None
        self._lengths = self._argument("lengths", (cell.batch,), "int32") if cell.ragged else None
        self._first = [self._argument("first_h", state)]
        if cell.kind == "LSTM":
            self._first.append(self._argument("first_c", state))
        more = (self._bias, self._peepholes, self._lengths)
        optional_buffers = [buffer for buffer in more if buffer is not None]
        self.inputs = [self._x, *self._matrices, *self._of_columns, *optional_buffers, *self._first]

    def _layout(self, tiles: int) -> tuple[tuple[int, int, int], str]:
        """Return the shape and the type of a matrix."""
        if self._cell.byte_lanes:
            return (tiles, _fours(self._cell.hidden), TILE * BYTES.products), "int8"
        return (tiles, self._cell.hidden, TILE), self._cell.dtype

    def _argument(self, name: str, shape: Sequence[int], dtype: str | None = None) -> Any:
        return T.arg(name + self._suffix, T.Buffer(shape, dtype or self._cell.dtype))

    def take_results(self) -> None:
        """Declare the results; they come behind the arguments of all directions."""
        state = (self._cell.batch, self._cell.hidden)
        self._y = self._argument("y", (self._cell.steps, *state))
        self._states = [self._argument(f"last_{name}", state) for name in "hc"[: len(self._first)]]
        self.results = [self._y, *self._states]

    @property
    def _byte(self) -> str:
        """The type of rounded states that the instruction takes."""
        return BYTE_DOTS[self._cell.byte_lanes].activations

    @property
    def _shift(self) -> int:
        """What is subtracted from states of 0 to 255, to have that type."""
        return -shifted_zero(0, "uint8", self._byte)

    def allocate(self) -> None:
        """Allocate the buffers that live as long as the kernel runs."""
        cell = self._cell
        self._sums = [
            T.sblock_alloc_buffer((cell.batch, matrix.shape[0] * TILE), cell.dtype)
            for matrix in self._matrices
        ]
        self._reset = T.sblock_alloc_buffer((cell.batch, cell.hidden), cell.dtype)
        if cell.rounded:
            padded = _fours(cell.hidden) * BYTES.products if cell.byte_lanes else cell.hidden
            self._rounded = T.sblock_alloc_buffer(
                (cell.batch, padded), self._byte if cell.byte_lanes else cell.dtype
            )
            # the least and the largest state, a step, and the integer that stands for zero
            self._range = T.sblock_alloc_buffer((4,), cell.dtype)

    @property
    def shares_steps(self) -> bool:
        """Return whether a step has so many products that threads share it."""
        return any(self._is_shared(matrix) for matrix in self._matrices)

    def _is_shared(self, matrix: Any) -> bool:
        columns = int(matrix.shape[0]) * TILE
        batch = self._cell.batch if isinstance(self._cell.batch, int) else 1
        return bool(batch * self._cell.hidden * columns >= self._shared_from)

    def write(self) -> None:
        """Write the loop over all steps."""
        cell = self._cell
        for first, state in zip(self._first, self._states, strict=True):
            self._for_each_unit(partial(self._begin, first, state))
        with T.serial(cell.steps) as number:
            self._step(cell.steps - 1 - number if cell.reverse else number)

    def _begin(self, first: Any, state: Any, b: Any, j: Any) -> None:
        """Set a unit's first state: zero in a sequence of no steps, as ONNX Runtime has it."""
        zero = _number(0, self._cell.dtype)
        start = first[b, j]
        begins = start if self._lengths is None else tirx.Select(self._lengths[b] > 0, start, zero)
        T.buffer_store(state, begins, [b, j])

    def _step(self, at: Any) -> None:
        h = self._states[0]
        if self._cell.rounded:
            self._round(h)
        self._product(0, self._rounded if self._cell.rounded else h)
        if self._cell.products == (2, 1):
            self._for_each_unit(
                lambda b, j: T.buffer_store(self._reset, self._gate(at, b, j, 1) * h[b, j], [b, j])
            )
            self._product(1, self._reset)
        # The cell has its own loops: TVM would treat a buffer that is used within one loop only as a single number.
        if self._cell.kind == "LSTM":
            self._for_each_unit(lambda b, j: self._keep(1, self._new_cell(at, b, j), at, b, j))
        new = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self._cell.kind]
        self._for_each_unit(lambda b, j: self._advance(at, b, j, new(at, b, j)))

    def _round(self, state: Any) -> None:
        """Round all sequences' states to the 256 steps between the least and the largest of them, zero among these."""
        cell, bounds = self._cell, self._range
        zero, unit, last = (_number(value, cell.dtype) for value in (0, 1, _LAST_INTEGER))
        T.buffer_store(bounds, zero, [0])
        T.buffer_store(bounds, zero, [1])
        with T.serial(cell.batch) as b, T.serial(cell.hidden) as j:
            T.buffer_store(bounds, tirx.min(bounds[0], state[b, j]), [0])
            T.buffer_store(bounds, tirx.max(bounds[1], state[b, j]), [1])
        width = bounds[1] - bounds[0]
        T.buffer_store(bounds, tirx.Select(width > zero, width / last, unit), [2])
        T.buffer_store(bounds, tirx.nearbyint(-bounds[0] / bounds[2]), [3])

        def steps(b: Any, j: Any) -> None:
            integer = tirx.nearbyint(state[b, j] / bounds[2]) + bounds[3]
            integer = tirx.min(tirx.max(integer, zero), last)
            value = (integer - bounds[3]) * bounds[2]
            if cell.byte_lanes:
                value = (integer - _number(self._shift, cell.dtype) if self._shift else integer).astype(
                    self._byte
                )
            T.buffer_store(self._rounded, value, [b, j])

        self._for_each_unit(steps)

    def _advance(self, at: Any, b: Any, j: Any, new: Any) -> None:
        """Write a unit's state of this step: zero if the sequence has ended; its last state is kept."""
        T.buffer_store(self._y, self._if_runs(at, b, new, _number(0, self._cell.dtype)), [at, b, j])
        self._keep(0, self._y[at, b, j], at, b, j)

    def _keep(self, number: int, new: Any, at: Any, b: Any, j: Any) -> None:
        state = self._states[number]
        T.buffer_store(state, self._if_runs(at, b, new, state[b, j]), [b, j])

    def _if_runs(self, at: Any, b: Any, value: Any, other: Any) -> Any:
        return value if self._lengths is None else tirx.Select(at < self._lengths[b], value, other)

    def _product(self, number: int, state: Any) -> None:
        """Sum the state's products with a matrix: a tile of columns in registers, for some sequences at once."""
        blocks = self._matrices[number].shape[0]
        shared = self._is_shared(self._matrices[number])
        with T.parallel(blocks) if shared else T.serial(blocks) as block:
            batch = self._cell.batch
            is_open = not isinstance(batch, int)
            blocks_of_rows = batch // _ROWS
            if is_open or blocks_of_rows:
                with T.serial(blocks_of_rows) as rows:
                    self._tile_sums(number, state, block, rows * _ROWS, _ROWS)
            if is_open:
                with T.serial(batch % _ROWS) as row:
                    self._tile_sums(number, state, block, blocks_of_rows * _ROWS + row, 1)
            elif batch % _ROWS:
                self._tile_sums(number, state, block, blocks_of_rows * _ROWS, batch % _ROWS)

    def _tile_sums(self, number: int, state: Any, block: Any, first: Any, rows: int) -> None:
        cell, matrix, sums = self._cell, self._matrices[number], self._sums[number]
        if cell.byte_lanes:
            self._tile_sums_of_bytes(matrix, sums, block, first, rows)
            return
        tile = T.sblock_alloc_buffer((rows, TILE), cell.dtype, scope="local")
        zero = _number(0, cell.dtype)
        self._lanes(rows, lambda row, i: T.buffer_store(tile, zero, [row, i]))
        with T.serial(cell.hidden) as k:
            self._lanes(
                rows,
                lambda row, i: T.buffer_store(
                    tile, tile[row, i] + state[first + row, k] * matrix[block, k, i], [row, i]
                ),
            )
        self._lanes(rows, lambda row, i: T.buffer_store(sums, tile[row, i], [first + row, block * TILE + i]))

    def _tile_sums_of_bytes(self, matrix: Any, sums: Any, block: Any, first: Any, rows: int) -> None:
        """Sum products of bytes, and turn the sums of integers into floats."""
        scales, weight_sums = self._of_columns
        lanes, step, zero = self._cell.byte_lanes, self._range[2], self._range[3].astype(BYTES.sum_dtype)
        zero = zero - _number(self._shift, BYTES.sum_dtype) if self._shift else zero
        tile = T.sblock_alloc_buffer((rows, TILE), BYTES.sum_dtype, scope="local")
        self._lanes(rows, lambda row, i: T.buffer_store(tile, _number(0, BYTES.sum_dtype), [row, i]))
        with T.serial(matrix.shape[1]) as k, T.unroll(rows) as row, T.unroll(TILE // lanes) as v:
            sums_at = [row, tirx.Ramp(v * lanes, tirx.const(1, "int32"), lanes)]
            factors = tirx.Ramp(v * lanes * BYTES.products, tirx.const(1, "int32"), lanes * BYTES.products)
            four = tirx.Ramp(k * BYTES.products, tirx.const(1, "int32"), BYTES.products)
            added = add_byte_products(
                tile[tuple(sums_at)],
                self._rounded[first + row, four],
                matrix[block, k, factors],
                BYTE_DOTS[lanes],
            )
            T.buffer_store(tile, added, sums_at)

        def scaled(row: Any, i: Any) -> None:
            column = block * TILE + i
            total = (tile[row, i] - zero * weight_sums[column]).astype(self._cell.dtype)
            T.buffer_store(sums, total * (scales[column] * step), [first + row, column])

        self._lanes(rows, scaled)

    @staticmethod
    def _lanes(rows: int, body: Callable[[Any, Any], None]) -> None:
        with T.unroll(rows) as row, T.unroll(TILE // _LANES) as v, T.vectorized(_LANES) as lane:
            body(row, v * _LANES + lane)

    def _for_each_unit(self, body: Callable[[Any, Any], None]) -> None:
        """Write loops over every unit of every sequence, vectorised except for a tail."""
        vectors, tail = divmod(self._cell.hidden, _LANES)
        with T.serial(self._cell.batch) as b:
            if vectors:
                with T.serial(vectors) as v, T.vectorized(_LANES) as lane:
                    body(b, v * _LANES + lane)
            if tail:
                with T.serial(tail) as j:
                    body(b, vectors * _LANES + j)

    def _sum(self, at: Any, b: Any, j: Any, gate: int) -> Any:
        """Return the argument of a gate's activation."""
        cell = self._cell
        column = gate * cell.hidden + j
        product = self._sums[0][b, column] if gate < cell.products[0] else self._sums[1][b, j]
        return self._x[at, b, column] + product

    def _gate(self, at: Any, b: Any, j: Any, gate: int, more: Any = None) -> Any:
        total = self._sum(at, b, j, gate)
        return self._cell.activations[0](self._clipped(total if more is None else total + more))

    def _clipped(self, value: Any) -> Any:
        if self._cell.clip is None:
            return value
        bound = _number(self._cell.clip, self._cell.dtype)
        return tirx.min(tirx.max(value, -bound), bound)

    def _peeped(self, number: int, cell_state: Any, j: Any) -> Any:
        return None if self._peepholes is None else self._peepholes[number, j] * cell_state

    def _new_cell(self, at: Any, b: Any, j: Any) -> Any:
        cell, before = self._cell, self._states[1][b, j]
        i = self._gate(at, b, j, 0, self._peeped(0, before, j))
        if cell.coupled:
            forget = _number(1, cell.dtype) - i
        else:
            forget = self._gate(at, b, j, 2, self._peeped(2, before, j))
        return forget * before + i * cell.activations[1](self._clipped(self._sum(at, b, j, 3)))

    def _lstm(self, at: Any, b: Any, j: Any) -> Any:
        after = self._states[1][b, j]
        return self._gate(at, b, j, 1, self._peeped(1, after, j)) * self._cell.activations[2](after)

    def _gru(self, at: Any, b: Any, j: Any) -> Any:
        cell, before = self._cell, self._states[0][b, j]
        z = self._gate(at, b, j, 0)
        if self._bias is None:
            total = self._sum(at, b, j, 2)
        else:
            column = 2 * cell.hidden + j
            product = self._sums[0][b, column] + self._bias[j]
            total = self._x[at, b, column] + self._gate(at, b, j, 1) * product
        candidate = cell.activations[1](self._clipped(total))
        return (_number(1, cell.dtype) - z) * candidate + z * before

    def _rnn(self, at: Any, b: Any, j: Any) -> Any:
        return self._gate(at, b, j, 0)


def _number(value: float, dtype: str) -> Any:
    return tirx.const(value, dtype)
