"""Convolutions and products of matrices of bytes, added up in 32-bit integers: what is made of a quantised network's.

Activations are multiplied without a sign, and weights with one, as ``vpdpbusd`` does it. Zero points leave the sums:
the sum of ``(x - zero) * w`` is that of ``x * w`` less ``zero`` times the sum of ``w``, which is known beforehand (`offsets`).
Weights lie as the instruction reads them (`packed`): four products of each of `lanes` results, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

PRODUCTS = 4
"""How many products an instruction adds to each sum."""
SUM = "byte_dot"
"""The name that these kernels' stages begin with."""
MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""A sum of more could leave 32 bits."""
_SIGN = 128

Array = NDArray[Any]


def packed(weights: Array, lanes: int) -> Array:
    """Return int8 weights ``[..., products, results]`` as ``[results / lanes, ..., products / 4, lanes * 4]``, zeros where none are."""
    *kernel, products, results = weights.shape
    groups, steps = -(-results // lanes), -(-products // PRODUCTS)
    wide = np.zeros((*kernel, steps * PRODUCTS, groups * lanes), np.int8)
    wide[..., :products, :results] = weights
    split = wide.reshape(*kernel, steps, PRODUCTS, groups, lanes)
    outer = len(kernel)
    order = (outer + 2, *range(outer), outer, outer + 3, outer + 1)
    made: Array = split.transpose(order).reshape(groups, *kernel, steps, lanes * PRODUCTS)
    return made


def unsigned_zero(zero: int, dtype: str) -> int:
    """Return the zero point of activations once they have no sign."""
    return zero + _SIGN if dtype == "int8" else zero


def offsets(weights: Array, zero: int) -> Array:
    """Return what is added to each sum for the sake of the activations' zero point.

    Args:
        weights: ``[..., products, results]``.
        zero: As of `unsigned_zero`.
    """
    sums = weights.astype(np.int64).sum(axis=tuple(range(weights.ndim - 1)))
    made: Array = np.asarray(-zero * sums, np.int32)
    return made


def byte_conv2d(
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
        weights: As of `packed`, two axes of the kernel first.
        offset: Added to each sum; its length is the number of channels.
        scale: What each channel's sums are multiplied with.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        zero: As of `unsigned_zero`; what the image is padded with.
    """
    batch, height, width, _ = (int(size) for size in x.shape)
    _, rows, columns, steps, _ = (int(size) for size in weights.shape)
    above, left, below, right = padding
    tall, wide = height + above + below, width + left + right
    given = _unsigned(x, (batch, tall, wide, steps * PRODUCTS), (0, above, left, 0), zero)
    out_height = (tall - dilation[0] * (rows - 1) - 1) // strides[0] + 1
    out_width = (wide - dilation[1] * (columns - 1) - 1) // strides[1] + 1
    row, column = _sum_over(rows, "row"), _sum_over(columns, "column")
    return _product(
        weights,
        offset,
        scale,
        (batch, out_height, out_width),
        [row, column],
        lambda n, i, j, c: given[
            n, i * strides[0] + row * dilation[0], j * strides[1] + column * dilation[1], c
        ],
    )


def byte_product(x: Any, weights: Any, offset: Any, scale: Any, *, zero: int) -> Any:
    """Return a product of matrices as float32; arguments as of `byte_conv2d`, `x` of any rank, its last axis summed over."""
    lead = [int(size) for size in x.shape[:-1]]
    steps = int(weights.shape[1])
    given = _unsigned(x, (*lead, steps * PRODUCTS), (0,) * len(x.shape), zero)
    return _product(weights, offset, scale, lead, [], lambda *place: given[place])


def _unsigned(x: Any, shape: Sequence[int], before: Sequence[int], zero: int) -> Any:
    """Return activations without a sign, padded with their zero point; themselves where that changes nothing."""
    sizes = [int(size) for size in x.shape]
    if x.dtype == "uint8" and list(shape) == sizes:
        return x

    def element(*place: Any) -> Any:
        inner = [at - skipped if skipped else at for at, skipped in zip(place, before, strict=True)]
        value = x[tuple(inner)]
        value = value if x.dtype == "uint8" else value.astype("uint8") ^ tirx.const(_SIGN, "uint8")
        inside = []
        for at, skipped, size, whole in zip(place, before, sizes, shape, strict=True):
            inside += [at >= skipped] if skipped else []
            inside += [at < skipped + size] if skipped + size < whole else []
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(zero, "uint8")) if inside else value

    return te.compute(_sizes(shape), element, name=f"{SUM}_input")


def _product(
    weights: Any, offset: Any, scale: Any, lead: Sequence[int], sums: Sequence[Any], read: Any
) -> Any:
    groups, steps, width = int(weights.shape[0]), int(weights.shape[-2]), int(weights.shape[-1])
    lanes, channels = width // PRODUCTS, int(offset.shape[0])
    step, part = _sum_over(steps, "step"), _sum_over(PRODUCTS, "part")

    def sum_of(*place: Any) -> Any:
        *outer, channel = place
        weight = weights[(channel // lanes, *sums, step, channel % lanes * PRODUCTS + part)]
        product = read(*outer, step * PRODUCTS + part).astype("int32") * weight.astype("int32")
        return te.sum(product, axis=[*sums, step, part])

    added = te.compute(_sizes([*lead, groups * lanes]), sum_of, name=SUM)
    return te.compute(
        _sizes([*lead, channels]),
        lambda *place: (added[place] + offset[place[-1]]).astype("float32") * scale[place[-1]],
        name=f"{SUM}_scaled",
    )


def _sum_over(extent: int, name: str) -> Any:
    return te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", extent)), name=name)


def _sizes(shape: Sequence[int]) -> list[Any]:
    return [tirx.IntImm("int64", size) for size in shape]
