"""Int8 convolutions and matrix products with 32-bit sums, for quantised networks.

The instruction ``vpdpbusd`` (VNNI) multiplies unsigned activations with signed weights. Zero points are taken out of the sums: the
sum of ``(x - zero) * w`` is the sum of ``x * w`` minus ``zero`` times the sum of ``w``, which is known at compile time (`offsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx

from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.kernels.dot_products import BYTES, Array, conv2d_sums, matmul_sums, padded

MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""More products could overflow a sum of 32 bits."""
_SIGN = 128


def unsigned_zero(zero: int, dtype: str) -> int:
    """Return the zero point of activations after they were made unsigned."""
    return zero + _SIGN if dtype == "int8" else zero


def offsets(weights: Array, zero: int) -> Array:
    """Return the correction of each sum for the zero point of unsigned activations (`unsigned_zero`), int32 ``[results]``.

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
        zero: The zero point of unsigned activations, with which the image is padded.
    """
    prepare = partial(_unsigned, zero=tirx.const(zero, "uint8"))
    sums = conv2d_sums(BYTES, x, weights, prepare, strides=strides, padding=padding, dilation=dilation)
    return _scaled(sums, offset, scale)


def int8_matmul(x: Any, weights: Any, offset: Any, scale: Any, *, zero: int) -> Any:
    """Return a matrix product as float32: arguments as of `int8_conv2d`, `x` of any rank, summed over its last axis."""
    prepare = partial(_unsigned, zero=tirx.const(zero, "uint8"))
    return _scaled(matmul_sums(BYTES, x, weights, prepare), offset, scale)


def integer_conv2d(
    x: Any,
    weights: Any,
    zero: Any,
    weight_sums: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """Return a 2-D convolution as int32, whose activations have a zero point that is known at run time only.

    Args:
        x: Activations, uint8 or int8, NHWC.
        weights: As `packed` returns them for ``[height, width, in, out]``.
        zero: The zero point of unsigned activations, with which the image is padded; int32 ``[1]``.
        weight_sums: The sum of each channel's weights; int32 ``[out]``.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
    """
    prepare = partial(_unsigned, zero=zero[0].astype("uint8"))
    sums = conv2d_sums(BYTES, x, weights, prepare, strides=strides, padding=padding, dilation=dilation)
    return _shifted(sums, zero, weight_sums)


def integer_matmul(x: Any, weights: Any, zero: Any, weight_sums: Any) -> Any:
    """Return a matrix product as int32: arguments as of `integer_conv2d`, `x` of any rank, summed over its last axis."""
    prepare = partial(_unsigned, zero=zero[0].astype("uint8"))
    return _shifted(matmul_sums(BYTES, x, weights, prepare), zero, weight_sums)


def _unsigned(x: Any, shape: Sequence[int], before: Sequence[int], *, zero: Any) -> Any:
    """Return activations as uint8, padded with their zero point; the same tensor if nothing changes."""
    if x.dtype == "uint8" and list(shape) == [int(size) for size in x.shape]:
        return x

    def value(element: Any) -> Any:
        return element if x.dtype == "uint8" else element.astype("uint8") ^ tirx.const(_SIGN, "uint8")

    return padded(x, shape, before, value, zero, f"{BYTES.stage}_input")


def _scaled(sums: Any, offset: Any, scale: Any) -> Any:
    *lead, _ = (int(size) for size in sums.shape)
    return te.compute(
        int64_sizes([*lead, int(offset.shape[0])]),
        lambda *indices: (sums[indices] + offset[indices[-1]]).astype("float32") * scale[indices[-1]],
        name=f"{BYTES.stage}_scaled",
    )


def _shifted(sums: Any, zero: Any, weight_sums: Any) -> Any:
    *lead, _ = (int(size) for size in sums.shape)
    return te.compute(
        int64_sizes([*lead, int(weight_sums.shape[0])]),
        lambda *indices: sums[indices] - zero[0] * weight_sums[indices[-1]],
        name=f"{BYTES.stage}_shifted",
    )
