"""The kernel of a pointwise convolution and the depthwise one behind it for CPUs, a few rows of the image at a time.

As two kernels, the first writes all channels between them and the second reads them: 4.8 MB in the first block of MobileNetV2, which no
second cache holds. Here a thread takes some rows of results, one after the other. It computes the rows of the image between that the next
one needs, and keeps as many as the depthwise kernel is high: the others are not needed any more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import POINTWISE_DEPTHWISE
from tunefarm_tuning.tvm.kernels.layers.written import DTYPE, argument, float_number, written_kernel

_ITEM_BYTES = 4


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "maximum": tirx.max,
    "minimum": tirx.min,
    "nn.relu": lambda value: tirx.max(value, float_number(0)),
    "sigmoid": tirx.sigmoid,
    "tanh": tirx.tanh,
}
"""What may be computed of each element, by Relax's names."""
_MOST_PIXELS = 12
_WHOLE_UNROLLED = 3
"""Height of a depthwise kernel up to which all of its taps are unrolled; of a higher one those of a row."""


@dataclass(frozen=True, slots=True)
class PerChannel:
    """An operand with a number for each channel: the kernel's argument of this number, of those with weights per channel."""

    argument: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A value for each element of a convolution's result.

    Attributes:
        operator: A key of `OPERATORS`.
        operands: Each a number, `PerChannel`, or the position of an earlier value: 0 is the convolution's result, 1 that of the first step.
    """

    operator: str
    operands: tuple[int | float | PerChannel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseDepthwise:
    """The two convolutions, of images with channels last.

    Attributes:
        batch: Number of images.
        image: Rows, columns and channels of an input.
        channels: Between the convolutions, and of the result.
        kernel: Rows and columns of the depthwise one.
        strides: Of the depthwise one.
        padding: Rows above the image, columns left of it, rows below, columns right of it.
        between: What is done to the pointwise one's results.
        after: What is done to the depthwise one's.
        vectors: How many arguments have a number per channel.
    """

    batch: int
    image: tuple[int, int, int]
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    between: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    vectors: int = 0

    @property
    def result(self) -> tuple[int, int, int]:
        """Rows, columns and channels of a result."""
        top, left, bottom, right = self.padding
        rows = (self.image[0] + top + bottom - self.kernel[0]) // self.strides[0] + 1
        columns = (self.image[1] + left + right - self.kernel[1]) // self.strides[1] + 1
        return rows, columns, self.channels

    @property
    def padded_columns(self) -> int:
        """Columns of an image between, with those that the padding adds."""
        needed = (self.result[1] - 1) * self.strides[1] + self.kernel[1]
        return max(self.padding[1] + self.image[1], needed)

    @property
    def between_bytes(self) -> int:
        """Bytes of a whole image between."""
        return self.image[0] * self.image[1] * self.channels * _ITEM_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How the kernel is cut.

    Attributes:
        width: Channels of a tile, whole vectors; it divides all channels.
        pixels: Pixels of a tile of the pointwise convolution, whose sums stay in registers.
        results: The same of the depthwise one.
        panels: Tiles of channels of a thread at a time; it divides those of all channels.
        rows: Rows of results of a thread at a time.
    """

    width: int
    panels: int
    pixels: int
    results: int
    rows: int

    @classmethod
    def of(
        cls,
        convolutions: PointwiseDepthwise,
        *,
        lanes: int,
        registers: int,
        second_cache_bytes: int,
        cores: int,
    ) -> Tiles | None:
        """Return the tiles for a CPU; None if the channels are no whole vectors.

        Args:
            convolutions: The convolutions.
            lanes: Floats of a vector.
            registers: Registers for vectors.
            second_cache_bytes: The part of the second cache that the kept rows may take.
            cores: Cores that work on it.
        """
        most = 4 if lanes <= 4 and registers > 16 else 2
        vectors = next((count for count in (most, 1) if convolutions.channels % (count * lanes) == 0), None)
        if vectors is None:
            return None
        in_registers = min((registers - vectors - 1) // vectors, _MOST_PIXELS)
        rows, columns, _ = convolutions.result
        width = vectors * lanes
        panels = convolutions.channels // width
        kept_bytes = convolutions.kernel[0] * convolutions.padded_columns * width * _ITEM_BYTES
        fitting = [
            count
            for count in range(1, panels + 1)
            if panels % count == 0 and (count == 1 or count * kept_bytes <= second_cache_bytes)
        ]
        # TVM gives each core as many iterations in a row. Rows that two chunks need are computed twice: no more chunks than that.
        whole_images = convolutions.batch * (panels // fitting[-1])
        chunks = cores // gcd(whole_images, cores)
        return cls(
            width=width,
            panels=fitting[-1],
            pixels=min(in_registers, convolutions.image[1]),
            # Factors that neighbouring pixels share are in registers, too.
            results=max(1, min(in_registers * 3 // 4, columns)),
            rows=ceil(rows / chunks),
        )


def pointwise_depthwise_kernel(convolutions: PointwiseDepthwise, tiles: Tiles) -> tirx.PrimFunc:
    """Return the kernel.

    Its arguments: the images ``[batch, rows, columns, channels]``, the pointwise weights ``[channels / width, inputs, width]``, the depthwise
    weights ``[rows, columns, 1, channels]``, the vectors ``[channels]``, and the result.
    """
    return written_kernel("pointwise_depthwise", POINTWISE_DEPTHWISE, lambda: _Writer(convolutions, tiles))


class _Writer:
    """Writes the kernel, within TVM's builder."""

    def __init__(self, convolutions: PointwiseDepthwise, tiles: Tiles) -> None:
        self._of, self._tiles = convolutions, tiles
        self._panels = convolutions.channels // tiles.width
        rows, columns, inputs = convolutions.image
        self._image = argument("image", (convolutions.batch, rows, columns, inputs))
        self._pointwise = argument("pointwise", (self._panels, inputs, tiles.width))
        self._depthwise = argument("depthwise", (*convolutions.kernel, 1, convolutions.channels))
        self._vectors = [
            argument(f"vector{number}", (convolutions.channels,)) for number in range(convolutions.vectors)
        ]
        self.inputs = [self._image, self._pointwise, self._depthwise, *self._vectors]
        self.result = argument("result", (convolutions.batch, *convolutions.result))

    def write(self) -> None:
        """Write the loop over images, chunks of rows, and groups of channels."""
        kernel, (stride, _) = self._of.kernel[0], self._of.strides
        rows, chunk, panels = self._of.result[0], self._tiles.rows, self._tiles.panels
        groups, chunks = self._panels // panels, -(-rows // chunk)
        self._kept = T.sblock_alloc_buffer(
            (kernel, panels, self._of.padded_columns, self._tiles.width), DTYPE
        )
        with T.parallel(self._of.batch * chunks * groups) as number:
            self._clear_columns()
            self._image_number = number // groups // chunks
            first, self._begin = number // groups % chunks * chunk, number % groups * panels
            if kernel > stride:
                with T.serial(kernel - stride) as row:
                    self._write_row_between(first * stride + row)
            with T.serial(tirx.min(chunk, rows - first)) as row:
                with T.serial(stride) as further:
                    self._write_row_between((first + row) * stride + (kernel - stride) + further)
                self._write_row(first + row)

    def _clear_columns(self) -> None:
        """Fill the columns that the padding adds to the kept rows with zeros."""
        left, end = self._of.padding[1], self._of.padding[1] + self._of.image[1]
        for begin, count in ((0, left), (end, self._of.padded_columns - end)):
            if count:
                with (
                    T.serial(self._of.kernel[0]) as slot,
                    T.serial(self._tiles.panels) as panel,
                    T.serial(count) as column,
                ):
                    self._clear(slot, panel, begin + column)

    def _clear(self, slot: Any, panel: Any, column: Any) -> None:
        with T.vectorized(self._tiles.width) as lane:
            T.buffer_store(self._kept, float_number(0), [slot, panel, column, lane])

    def _write_row_between(self, row: Any) -> None:
        """Write a row between the convolutions, numbered with the padding, into its slot."""
        top, (rows, _, _) = self._of.padding[0], self._of.image
        slot = tirx.floormod(row, self._of.kernel[0])
        with T.If(tirx.all(row >= top, row < rows + top)):
            with T.Then(), T.serial(self._tiles.panels) as panel:
                self._write_pixels(slot, panel, row - top)
            with T.Else(), T.serial(self._tiles.panels) as panel, T.serial(self._of.padded_columns) as column:
                self._clear(slot, panel, column)

    def _write_pixels(self, slot: Any, panel: Any, row: Any) -> None:
        """Write a panel of channels of a row. The last tile begins earlier instead of ending later."""
        left, (_, columns, inputs) = self._of.padding[1], self._of.image
        count = self._tiles.pixels
        with T.serial(-(-columns // count)) as tile:
            first = tirx.min(tile * count, columns - count)
            sums = self._sums(count)
            with T.serial(inputs) as k:
                self._for_each_lane(
                    count,
                    lambda pixel, lane: T.buffer_store(
                        sums,
                        sums[pixel, lane]
                        + self._image[self._image_number, row, first + pixel, k]
                        * self._pointwise[self._begin + panel, k, lane],
                        [pixel, lane],
                    ),
                )
            self._for_each_lane(
                count,
                lambda pixel, lane: T.buffer_store(
                    self._kept,
                    self._after(self._of.between, sums[pixel, lane], panel, lane),
                    [slot, panel, left + first + pixel, lane],
                ),
            )

    def _write_row(self, row: Any) -> None:
        """Write a row of results from the kept rows."""
        (_, columns, _), count = self._of.result, self._tiles.results
        kernel, stride = self._of.kernel[0], self._of.strides[0]
        with T.serial(self._tiles.panels) as panel, T.serial(-(-columns // count)) as tile:
            first = tirx.min(tile * count, columns - count)
            sums = self._sums(count)
            if kernel <= _WHOLE_UNROLLED:
                for tap_row in range(kernel):
                    self._add_taps(sums, panel, first, row * stride, tap_row)
            else:
                with T.serial(kernel) as tap_row:
                    self._add_taps(sums, panel, first, row * stride, tap_row)
            self._for_each_lane(
                count,
                lambda pixel, lane: T.buffer_store(
                    self.result,
                    self._after(self._of.after, sums[pixel, lane], panel, lane),
                    [self._image_number, row, first + pixel, self._channel(panel, lane)],
                ),
            )

    def _add_taps(self, sums: Any, panel: Any, first: Any, row: Any, tap_row: Any) -> None:
        """Add the products of a row of the depthwise kernel."""
        stride, width = self._of.strides[1], self._tiles.width
        slot = tirx.floormod(row + tap_row, self._of.kernel[0])
        for tap in range(self._of.kernel[1]):
            for pixel in range(self._tiles.results):
                with T.vectorized(width) as lane:
                    factor = self._kept[slot, panel, (first + pixel) * stride + tap, lane]
                    weight = self._depthwise[tap_row, tap, 0, self._channel(panel, lane)]
                    T.buffer_store(sums, sums[pixel, lane] + factor * weight, [pixel, lane])

    def _after(self, steps: Sequence[Step], value: Any, panel: Any, lane: Any) -> Any:
        """Return what is left of a value after all steps."""
        values = [value]
        for step in steps:
            operands = []
            for operand in step.operands:
                if isinstance(operand, PerChannel):
                    operands.append(self._vectors[operand.argument][self._channel(panel, lane)])
                else:
                    operands.append(values[operand] if isinstance(operand, int) else float_number(operand))
            values.append(OPERATORS[step.operator](*operands))
        return values[-1]

    def _channel(self, panel: Any, lane: Any) -> Any:
        return (self._begin + panel) * self._tiles.width + lane

    def _sums(self, count: int) -> Any:
        """Return sums in registers, which are zero."""
        sums = T.sblock_alloc_buffer((count, self._tiles.width), DTYPE, scope="local")
        self._for_each_lane(count, lambda pixel, lane: T.buffer_store(sums, float_number(0), [pixel, lane]))
        return sums

    def _for_each_lane(self, count: int, body: Callable[[Any, Any], None]) -> None:
        with T.unroll(count) as pixel, T.vectorized(self._tiles.width) as lane:
            body(pixel, lane)
