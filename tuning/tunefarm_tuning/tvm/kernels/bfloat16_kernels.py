"""Convolutions and matrix products of bfloat16 with sums in float32, by ``vdpbf16ps`` (AVX512_BF16), or ``bfdot`` and ``bfmmla`` (Arm).

The instructions flush denormal numbers to zero. The first rounds each product's addition once; Arm's round two products of a
step, and their sum, to odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.kernels.dot_products import (
    BFLOAT16,
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


def bfloat16_conv2d(
    x: Any,
    weights: Any,
    *,
    channels: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Groups | None = None,
    kind: DotProduct = BFLOAT16,
    runs: Runs | None = None,
) -> Any:
    """Return a 2-D convolution as float32.

    Args:
        x: Activations, bfloat16, NHWC.
        weights: As `dot_products.packed_groups` returns them for ``[height, width, in, out]``; bfloat16.
        channels: The number of output channels.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        groups: Groups of channels; None for one.
        kind: The instruction.
        runs: If the columns of activations and weights are runs (`dot_products.conv_sums`).
    """
    sums, lead = conv_sums(
        kind, x, weights, _with_zeros,
        strides=strides, padding=padding, dilation=dilation, groups=groups, runs=runs,
    )  # fmt: skip
    return _cropped(sums, lead, channels, groups)


def bfloat16_matmul(x: Any, weights: Any, *, channels: int, kind: DotProduct = BFLOAT16) -> Any:
    """Return a matrix product as float32: arguments as of `bfloat16_conv2d`, `x` of any rank, summed over its last axis."""
    lead = [int(size) for size in x.shape[:-1]]
    return _cropped(matmul_sums(kind, x, weights, _with_zeros), lead, channels)


def _with_zeros(x: Any, shape: Sequence[int], before: Sequence[int], groups: Groups) -> Any:
    if list(shape) == [int(size) for size in x.shape]:
        return x
    zero = tirx.const(0, "bfloat16")
    return padded(x, shape, before, lambda element: element, zero, f"{BFLOAT16.stage}_input", groups)


def _cropped(sums: Any, lead: Sequence[int], channels: int, groups: Groups | None = None) -> Any:
    """Return the sums of a result's rows and channels, wherever the instruction leaves them."""
    if len(sums.shape) == len(lead) + 1 and padded_results(sums) == channels:
        return sums

    def at(*indices: Any) -> Any:
        *outer, channel = indices
        if groups is not None and groups.merged * groups.results * groups.computed != padded_results(sums):
            group, number = channel // groups.results, channel % groups.results
            channel = column_of_group(sums, groups, group, number, groups.results)
        return sum_at(sums, (*outer, channel))

    return te.compute(int64_sizes([*lead, channels]), at, name="bfloat16_cropped")
