"""Int8 convolutions and matrix products with 32-bit sums, for quantised networks.

The instruction ``vpdpbusd`` (VNNI) multiplies unsigned activations with signed weights, Arm's ``sdot`` signed ones: activations of the
other type are shifted by 128 on the way. Zero points are taken out of the sums: the sum of ``(x - zero) * w`` is the sum of ``x * w``
minus ``zero`` times the sum of ``w``, which is known at compile time (`offsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.kernels.dot_products import (
    BYTE_MATRICES,
    BYTES,
    Array,
    DotProduct,
    conv2d_sums,
    matmul_sums,
    padded,
    sum_at,
)

MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""More products could overflow a sum of 32 bits."""
_SIGN = 128


def shifted_zero(zero: int, dtype: str, wanted: str) -> int:
    """Return the zero point of activations of a type after they became those of the wanted one."""
    return zero if dtype == wanted else zero + _SIGN if dtype == "int8" else zero - _SIGN


def offsets(weights: Array, zero: int) -> Array:
    """Return the correction of each sum for the zero point of the activations (`shifted_zero`), int32 ``[results]``.

    Weights are ``[..., products, results]``.
    """
    sums = weights.astype(np.int64).sum(axis=tuple(range(weights.ndim - 1)))
    result: Array = np.asarray(-zero * sums, np.int32)
    return result


def int8_conv2d(
    x: Any,
    weights: Any,
    offset: Any,
    scale: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    zero: int,
    instruction: ByteProducts,
) -> Any:
    """Return a 2-D convolution as float32.

    Args:
        x: Activations, uint8 or int8, NHWC.
        weights: As `packed` returns them for ``[height, width, in, out]``.
        offset: Number to add to each sum (`offsets`); int32 ``[out]``.
        scale: Factor of each channel's sums; float32 ``[out]``.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        zero: The zero point of activations of that type, with which the image is padded.
        instruction: The CPU's.
    """
    prepare = partial(_shifted_bytes, zero=tirx.const(zero, instruction.activations), instruction=instruction)
    sums, lead = conv2d_sums(
        _kind(instruction), x, weights, prepare, strides=strides, padding=padding, dilation=dilation
    )
    return _scaled(sums, lead, offset, scale)


def int8_matmul(
    x: Any, weights: Any, offset: Any, scale: Any, *, zero: int, instruction: ByteProducts
) -> Any:
    """Return a matrix product as float32: arguments as of `int8_conv2d`, `x` of any rank, summed over its last axis."""
    prepare = partial(_shifted_bytes, zero=tirx.const(zero, instruction.activations), instruction=instruction)
    sums = matmul_sums(_kind(instruction), x, weights, prepare)
    return _scaled(sums, [int(size) for size in x.shape[:-1]], offset, scale)


def byte_depthwise_conv2d(
    x: Any,
    weights: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    zero: int,
) -> Any:
    """Return a depthwise 2-D convolution as float32, which widens bytes as it reads them.

    It has a handful of products per result, too few for an instruction that adds four; but its image is read as bytes.

    Args:
        x: Activations, uint8 or int8, NHWC.
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
        image = padded(x, padded_sizes, [0, above, left, 0], lambda byte: byte, outside, "depthwise_image")

    def shifted(byte: Any) -> Any:
        value = byte.astype("float32")
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


def integer_conv2d(
    x: Any,
    weights: Any,
    zero: Any,
    weight_sums: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    instruction: ByteProducts,
) -> Any:
    """Return a 2-D convolution as int32, whose activations have a zero point that is known at run time only.

    Args:
        x: Activations, uint8 or int8, NHWC.
        weights: As `packed` returns them for ``[height, width, in, out]``.
        zero: The zero point of activations of the instruction's type, with which the image is padded; int32 ``[1]``.
        weight_sums: The sum of each channel's weights; int32 ``[out]``.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        instruction: The CPU's.
    """
    prepare = partial(_shifted_bytes, zero=zero[0].astype(instruction.activations), instruction=instruction)
    sums, lead = conv2d_sums(
        _kind(instruction), x, weights, prepare, strides=strides, padding=padding, dilation=dilation
    )
    return _shifted(sums, lead, zero, weight_sums)


def integer_matmul(x: Any, weights: Any, zero: Any, weight_sums: Any, *, instruction: ByteProducts) -> Any:
    """Return a matrix product as int32: arguments as of `integer_conv2d`, `x` of any rank, summed over its last axis."""
    prepare = partial(_shifted_bytes, zero=zero[0].astype(instruction.activations), instruction=instruction)
    sums = matmul_sums(_kind(instruction), x, weights, prepare)
    return _shifted(sums, [int(size) for size in x.shape[:-1]], zero, weight_sums)


def _shifted_bytes(
    x: Any, shape: Sequence[int], before: Sequence[int], *, zero: Any, instruction: ByteProducts
) -> Any:
    """Return activations in the instruction's type, padded with their zero point; the same tensor if nothing changes."""
    dtype = instruction.activations
    if x.dtype == dtype and list(shape) == [int(size) for size in x.shape]:
        return x
    sign = tirx.const(_SIGN if dtype == "uint8" else -_SIGN, dtype)

    def value(element: Any) -> Any:
        return element if x.dtype == dtype else element.astype(dtype) ^ sign

    return padded(x, shape, before, value, zero, f"{BYTES.stage}_input")


def _kind(instruction: ByteProducts) -> DotProduct:
    return BYTES if instruction.rows == 1 else BYTE_MATRICES


def _scaled(sums: Any, lead: Sequence[int], offset: Any, scale: Any) -> Any:
    return te.compute(
        int64_sizes([*lead, int(offset.shape[0])]),
        lambda *indices: (sum_at(sums, indices) + offset[indices[-1]]).astype("float32") * scale[indices[-1]],
        name=f"{BYTES.stage}_scaled",
    )


def _shifted(sums: Any, lead: Sequence[int], zero: Any, weight_sums: Any) -> Any:
    return te.compute(
        int64_sizes([*lead, int(weight_sums.shape[0])]),
        lambda *indices: sum_at(sums, indices) - zero[0] * weight_sums[indices[-1]],
        name=f"{BYTES.stage}_shifted",
    )
