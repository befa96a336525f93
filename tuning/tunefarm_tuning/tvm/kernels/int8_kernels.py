"""Int8 convolutions and matrix products with 32-bit sums, for quantised networks.

The instruction ``vpdpbusd`` (VNNI) multiplies unsigned activations with signed weights, Arm's ``sdot`` signed ones: activations of the
other type are shifted by 128 on the way. Zero points are taken out of the sums: the sum of ``(x - zero) * w`` is the sum of ``x * w``
minus ``zero`` times the sum of ``w``, which is known at compile time (`offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.kernels.dot_products import (
    BYTE_MATRICES,
    BYTE_PAIRS,
    BYTES,
    Array,
    DotProduct,
    Groups,
    Runs,
    column_of_group,
    conv_sums,
    matmul_sums,
    padded,
    padded_results,
    sum_at,
)

MOST_PRODUCTS = (1 << 31) // (255 * 128)
"""More products could overflow a sum of 32 bits."""
_SIGN = 128


def shifted_zero(zero: int, dtype: str, wanted: str) -> int:
    """Return the zero point of activations of a type after they became those of the wanted one."""
    if wanted in (dtype, "int16"):
        return zero
    return zero + _SIGN if dtype == "int8" else zero - _SIGN


def offsets(weights: Array, zero: int) -> Array:
    """Return the correction of each sum for the zero point of the activations (`shifted_zero`), int32 ``[results]``.

    Weights are ``[..., products, results]``.
    """
    sums = weights.astype(np.int64).sum(axis=tuple(range(weights.ndim - 1)))
    result: Array = np.asarray(-zero * sums, np.int32)
    return result


def int8_conv(
    x: Any,
    weights: Any,
    offset: Any,
    scale: Any,
    *centres: Any,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Groups,
    zero: int,
    instruction: ByteProducts,
    runs: Runs | None = None,
) -> Any:
    """Return a convolution as float32.

    Args:
        x: Activations, uint8 or int8, channels last.
        weights: As `packed_groups` returns them for ``[*sizes, in, out]``.
        offset: Number to add to each sum (`offsets`); int32 ``[out]``.
        scale: Factor of each channel's sums; float32 ``[out]``.
        *centres: If the weights reach beyond int8: what was subtracted from each channel's; int32 ``[out]``. Behind the channels of
            each group there is then one whose weights are ones.
        strides: Along each axis.
        padding: At the start of each axis, then at the end of each.
        dilation: Along each axis.
        groups: Groups of channels.
        zero: The zero point of activations of that type, with which the image is padded.
        instruction: The CPU's.
        runs: If the columns of activations and weights are runs (`dot_products.conv_sums`).
    """
    prepare = partial(shifted_bytes, zero=tirx.const(zero, instruction.activations), instruction=instruction)
    sums, lead = conv_sums(
        _kind(instruction), x, weights, prepare,
        strides=strides, padding=padding, dilation=dilation, groups=groups, runs=runs,
    )  # fmt: skip
    return scaled(_results(sums, groups, centres), lead, offset, scale)


def int8_matmul(
    x: Any,
    weights: Any,
    offset: Any,
    scale: Any,
    *centres: Any,
    groups: Groups,
    zero: int,
    instruction: ByteProducts,
) -> Any:
    """Return a matrix product as float32: arguments as of `int8_conv`, `x` of any rank, summed over its last axis."""
    prepare = partial(shifted_bytes, zero=tirx.const(zero, instruction.activations), instruction=instruction)
    sums = matmul_sums(_kind(instruction), x, weights, prepare)
    lead = [int(size) for size in x.shape[:-1]]
    return scaled(_results(sums, groups, centres), lead, offset, scale)


def integer_conv(
    x: Any,
    weights: Any,
    zero: Any,
    weight_sums: Any,
    *centres: Any,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Groups,
    instruction: ByteProducts,
    runs: Runs | None = None,
) -> Any:
    """Return a convolution as int32, whose activations have a zero point that is known at run time only.

    Args:
        x: Activations, uint8 or int8, channels last.
        weights: As `packed_groups` returns them for ``[*sizes, in, out]``.
        zero: The zero point of activations of the instruction's type, with which the image is padded; int32 ``[1]``.
        weight_sums: The sum of each channel's weights; int32 ``[out]``.
        *centres: As of `int8_conv`.
        strides: Along each axis.
        padding: At the start of each axis, then at the end of each.
        dilation: Along each axis.
        groups: Groups of channels.
        instruction: The CPU's.
        runs: If the columns of activations and weights are runs (`dot_products.conv_sums`).
    """
    prepare = partial(shifted_bytes, zero=zero[0].astype(instruction.activations), instruction=instruction)
    sums, lead = conv_sums(
        _kind(instruction), x, weights, prepare,
        strides=strides, padding=padding, dilation=dilation, groups=groups, runs=runs,
    )  # fmt: skip
    return _shifted(_results(sums, groups, centres), lead, zero, weight_sums)


def integer_matmul(
    x: Any,
    weights: Any,
    zero: Any,
    weight_sums: Any,
    *centres: Any,
    groups: Groups,
    instruction: ByteProducts,
) -> Any:
    """Return a matrix product as int32: arguments as of `integer_conv`, `x` of any rank, summed over its last axis."""
    prepare = partial(shifted_bytes, zero=zero[0].astype(instruction.activations), instruction=instruction)
    sums = matmul_sums(_kind(instruction), x, weights, prepare)
    lead = [int(size) for size in x.shape[:-1]]
    return _shifted(_results(sums, groups, centres), lead, zero, weight_sums)


def shifted_bytes(
    x: Any,
    shape: Sequence[int],
    before: Sequence[int],
    groups: Groups | None,
    *,
    zero: Any,
    instruction: ByteProducts,
) -> Any:
    """Return activations in the instruction's type, padded with their zero point; the same tensor if nothing changes."""
    dtype = instruction.activations
    if x.dtype == dtype and list(shape) == [int(size) for size in x.shape]:
        return x
    sign = tirx.const(0 if dtype == "int16" else _SIGN if dtype == "uint8" else -_SIGN, dtype)

    def value(element: Any) -> Any:
        return element if x.dtype == dtype else element.astype(dtype) ^ sign

    return padded(x, shape, before, value, zero, f"{BYTES.stage}_input", groups)


def _kind(instruction: ByteProducts) -> DotProduct:
    kinds = (BYTES, BYTE_PAIRS, BYTE_MATRICES)
    return next(
        kind for kind in kinds if (kind.products, kind.rows) == (instruction.products, instruction.rows)
    )


def _results(sums: Any, groups: Groups, centres: Sequence[Any]) -> Callable[..., Any]:
    """Return a function of a result's indices that gives its sum, wherever it lies, with what the centre of its weights adds."""
    per_group, wide = groups.results, padded_results(sums) // groups.computed
    each = per_group + 1 if centres else per_group

    def at(*indices: Any) -> Any:
        *outer, channel = indices
        if (groups.computed == 1 and not centres) or (groups.merged * each == wide and not centres):
            return sum_at(sums, indices)
        group, number = (0, channel) if groups.count == 1 else (channel // per_group, channel % per_group)
        total = sum_at(sums, (*outer, column_of_group(sums, groups, group, number, each)))
        if not centres:
            return total
        return total + centres[0][channel] * sum_at(
            sums, (*outer, column_of_group(sums, groups, group, per_group, each))
        )

    return at


def scaled(result: Callable[..., Any], lead: Sequence[int], offset: Any, scale: Any) -> Any:
    """Return sums, by a function of their indices, as float32 ``[*lead, results]``: with `offset` added, times `scale`."""
    return te.compute(
        int64_sizes([*lead, int(offset.shape[0])]),
        lambda *indices: (result(*indices) + offset[indices[-1]]).astype("float32") * scale[indices[-1]],
        name=f"{BYTES.stage}_scaled",
    )


def _shifted(result: Callable[..., Any], lead: Sequence[int], zero: Any, weight_sums: Any) -> Any:
    return te.compute(
        int64_sizes([*lead, int(weight_sums.shape[0])]),
        lambda *indices: result(*indices) - zero[0] * weight_sums[indices[-1]],
        name=f"{BYTES.stage}_shifted",
    )
