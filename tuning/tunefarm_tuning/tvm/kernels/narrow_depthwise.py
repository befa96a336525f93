"""Depthwise convolutions of bytes, for quantised networks, and of bfloat16.

A result has a handful of products, all of one channel. An instruction for dot products adds four of them to each sum if the bytes of four
rows lie side by side (`BYTE_TAPS`): they are shuffled so in registers, and neighbouring results share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.kernels.dot_products import BYTE_TAPS, Array, padded
from tunefarm_tuning.tvm.kernels.int8_kernels import scaled, shifted_bytes

MOST_TAPS = 64
"""Most taps of a kernel: the instructions of all of them are unrolled, several times."""


def taps_of(rows: int, columns: int) -> int:
    """Return how many instructions a vector of results takes, for a kernel of so many rows and columns."""
    return columns * -(-rows // BYTE_TAPS.products)


def packed_taps(weights: Array, lanes: int) -> Array:
    """Pack the weights of a depthwise convolution for an instruction of `lanes` sums: those of four rows side by side.

    Args:
        weights: int8 ``[height, width, 1, channels]``; the channels are whole vectors.
        lanes: Sums of the instruction.

    Returns:
        ``[channels / lanes, width, height / 4, lanes * 4]``; the height's quotient is rounded up, the rows padded with zeros.
    """
    height, width, _, channels = weights.shape
    steps, rows = -(-height // BYTE_TAPS.products), BYTE_TAPS.products
    full = np.zeros((steps * rows, width, channels), weights.dtype)
    full[:height] = weights[:, :, 0]
    split = full.reshape(steps, rows, width, channels // lanes, lanes)
    return np.ascontiguousarray(split.transpose(3, 2, 0, 4, 1)).reshape(-1, width, steps, lanes * rows)


def integer_depthwise_conv2d(
    x: Any,
    weights: Any,
    offset: Any,
    scale: Any,
    *,
    rows: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    zero: int,
    instruction: ByteProducts,
) -> Any:
    """Return a depthwise 2-D convolution as float32, whose sums are integers.

    Args:
        x: Activations, uint8 or int8, NHWC.
        weights: As `packed_taps` returns them.
        offset: Number to add to each channel's sums (`int8_kernels.offsets`); int32 ``[channels]``.
        scale: Factor of each channel's sums; float32 ``[channels]``.
        rows: Of the kernel.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, which is 1, and across.
        zero: The zero point of activations of the instruction's type, with which the image is padded.
        instruction: The CPU's.
    """
    batch, height, width, channels = (int(size) for size in x.shape)
    _, columns, steps, _ = (int(size) for size in weights.shape)
    above, left, below, right = padding
    wide = width + left + right
    down = (height + above + below - rows) // strides[0] + 1
    across = (wide - (columns - 1) * dilation[1] - 1) // strides[1] + 1
    tall = max(height + above + below, (down - 1) * strides[0] + steps * BYTE_TAPS.products)
    image = shifted_bytes(
        x, (batch, tall, wide, channels), (0, above, left, 0), None,
        zero=tirx.const(zero, instruction.activations), instruction=instruction,
    )  # fmt: skip
    column, step, part = (
        te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", extent)), name=name)
        for name, extent in (("column", columns), ("step", steps), ("part", BYTE_TAPS.products))
    )
    lanes = instruction.lanes

    def total(n: Any, y: Any, x: Any, c: Any) -> Any:
        row = y * strides[0] + step * BYTE_TAPS.products + part
        byte = image[n, row, x * strides[1] + column * dilation[1], c]
        weight = weights[c // lanes, column, step, c % lanes * BYTE_TAPS.products + part]
        return te.sum(byte.astype("int32") * weight.astype("int32"), axis=[column, step, part])

    sums = te.compute(int64_sizes([batch, down, across, channels]), total, name=BYTE_TAPS.stage)
    return scaled(lambda *indices: sums[indices], [batch, down, across], offset, scale)


def narrow_depthwise_conv2d(
    x: Any,
    weights: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    zero: int,
) -> Any:
    """Return a depthwise 2-D convolution as float32, which widens bytes, or bfloat16, as it reads them.

    It has a handful of products per result, too few for an instruction of many lanes; but what it reads is smaller.

    Args:
        x: Activations, uint8, int8 or bfloat16, NHWC.
        weights: Times the scale of the activations; float32 ``[height, width, 1, channels]``.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        zero: The zero point of the activations.
    """
    batch, height, width, channels = (int(size) for size in x.shape)
    rows, columns = (int(size) for size in weights.shape[:2])
    above, left, below, right = padding
    padded_sizes = [batch, height + above + below, width + left + right, channels]
    image = x
    if any(padding):
        outside = tirx.const(zero, x.dtype)
        image = padded(
            x, padded_sizes, [0, above, left, 0], lambda element: element, outside, "depthwise_image"
        )

    def shifted(element: Any) -> Any:
        value = element.astype("float32")
        return value - tirx.const(float(zero), "float32") if zero else value

    reach = ((rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1)
    sizes = [
        batch,
        (padded_sizes[1] - reach[0]) // strides[0] + 1,
        (padded_sizes[2] - reach[1]) // strides[1] + 1,
        channels,
    ]
    row, column = te.reduce_axis((0, rows), name="ry"), te.reduce_axis((0, columns), name="rx")
    return te.compute(
        int64_sizes(sizes),
        lambda n, y, x, c: te.sum(
            shifted(image[n, y * strides[0] + row * dilation[0], x * strides[1] + column * dilation[1], c])
            * weights[row, column, 0, c],
            axis=[row, column],
        ),
        name="depthwise_sums",
    )
