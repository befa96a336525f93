"""Int8 convolutions and matrix products with 32-bit sums, for quantised networks.

The instruction ``vpdpbusd`` (VNNI) multiplies unsigned activations with signed weights. Zero points are taken out of the sums: the
sum of ``(x - zero) * w`` is the sum of ``x * w`` minus ``zero`` times the sum of ``w``, which is known at compile time (`offsets`).
Weights are packed as the instruction reads them (`packed`): four products of each of `lanes` results, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.tvm.base.tir import int64_sizes

PRODUCTS = 4
"""Products that one instruction adds to each sum."""
SUM_STAGE = "byte_dot"
"""Name of the summing stage, and prefix of the other stages' names. It is part of workload keys."""
MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""More products could overflow a sum of 32 bits."""
_SIGN = 128

Array = NDArray[Any]


def packed(weights: Array, lanes: int) -> Array:
    """Pack int8 weights ``[..., products, results]`` for an instruction that makes `lanes` sums, padded with zeros.

    Returns:
        ``[results / lanes, ..., products / 4, lanes * 4]``, quotients rounded up.
    """
    *kernel, products, results = weights.shape
    groups, steps = -(-results // lanes), -(-products // PRODUCTS)
    wide = np.zeros((*kernel, steps * PRODUCTS, groups * lanes), np.int8)
    wide[..., :products, :results] = weights
    split = wide.reshape(*kernel, steps, PRODUCTS, groups, lanes)
    outer = len(kernel)
    order = (outer + 2, *range(outer), outer, outer + 3, outer + 1)
    result: Array = split.transpose(order).reshape(groups, *kernel, steps, lanes * PRODUCTS)
    return result


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
    batch, height, width, _ = (int(size) for size in x.shape)
    _, rows, columns, steps, _ = (int(size) for size in weights.shape)
    above, left, below, right = padding
    tall, wide = height + above + below, width + left + right
    activations = _unsigned(x, (batch, tall, wide, steps * PRODUCTS), (0, above, left, 0), zero)
    out_height = (tall - dilation[0] * (rows - 1) - 1) // strides[0] + 1
    out_width = (wide - dilation[1] * (columns - 1) - 1) // strides[1] + 1
    row, column = _sum_over(rows, "row"), _sum_over(columns, "column")
    return _product(
        weights,
        offset,
        scale,
        (batch, out_height, out_width),
        [row, column],
        lambda n, i, j, c: activations[
            n, i * strides[0] + row * dilation[0], j * strides[1] + column * dilation[1], c
        ],
    )


def int8_matmul(x: Any, weights: Any, offset: Any, scale: Any, *, zero: int) -> Any:
    """Return a matrix product as float32: arguments as of `int8_conv2d`, `x` of any rank, summed over its last axis."""
    lead = [int(size) for size in x.shape[:-1]]
    steps = int(weights.shape[1])
    activations = _unsigned(x, (*lead, steps * PRODUCTS), (0,) * len(x.shape), zero)
    return _product(weights, offset, scale, lead, [], lambda *indices: activations[indices])


def _unsigned(x: Any, shape: Sequence[int], before: Sequence[int], zero: int) -> Any:
    """Return activations as uint8, padded with their zero point; the same tensor if nothing changes."""
    sizes = [int(size) for size in x.shape]
    if x.dtype == "uint8" and list(shape) == sizes:
        return x

    def element(*indices: Any) -> Any:
        inner = [
            index - skipped if skipped else index for index, skipped in zip(indices, before, strict=True)
        ]
        value = x[tuple(inner)]
        value = value if x.dtype == "uint8" else value.astype("uint8") ^ tirx.const(_SIGN, "uint8")
        inside = []
        for index, skipped, size, padded in zip(indices, before, sizes, shape, strict=True):
            inside += [index >= skipped] if skipped else []
            inside += [index < skipped + size] if skipped + size < padded else []
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(zero, "uint8")) if inside else value

    return te.compute(int64_sizes(shape), element, name=f"{SUM_STAGE}_input")


def _product(
    weights: Any, offset: Any, scale: Any, lead: Sequence[int], sums: Sequence[Any], read: Any
) -> Any:
    groups, steps, width = int(weights.shape[0]), int(weights.shape[-2]), int(weights.shape[-1])
    lanes, channels = width // PRODUCTS, int(offset.shape[0])
    step, part = _sum_over(steps, "step"), _sum_over(PRODUCTS, "part")

    def sum_of(*indices: Any) -> Any:
        *outer, channel = indices
        weight = weights[(channel // lanes, *sums, step, channel % lanes * PRODUCTS + part)]
        product = read(*outer, step * PRODUCTS + part).astype("int32") * weight.astype("int32")
        return te.sum(product, axis=[*sums, step, part])

    added = te.compute(int64_sizes([*lead, groups * lanes]), sum_of, name=SUM_STAGE)
    return te.compute(
        int64_sizes([*lead, channels]),
        lambda *indices: (added[indices] + offset[indices[-1]]).astype("float32") * scale[indices[-1]],
        name=f"{SUM_STAGE}_scaled",
    )


def _sum_over(extent: int, name: str) -> Any:
    return te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", extent)), name=name)
