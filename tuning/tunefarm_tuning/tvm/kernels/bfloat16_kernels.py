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
    kind: DotProduct = BFLOAT16,
    runs: Runs | None = None,
) -> Any:
    """Return a 2-D convolution as float32.

    Args:
        x: Activations, bfloat16, NHWC.
        weights: As `dot_products.packed` returns them for ``[height, width, in, out]``; bfloat16.
        channels: The number of output channels.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
        kind: The instruction.
        runs: If the columns of activations and weights are runs (`dot_products.conv_sums`).
    """
    sums, lead = conv_sums(
        kind, x, weights, _with_zeros, strides=strides, padding=padding, dilation=dilation, runs=runs
    )
    return _cropped(sums, lead, channels)


def bfloat16_matmul(x: Any, weights: Any, *, channels: int, kind: DotProduct = BFLOAT16) -> Any:
    """Return a matrix product as float32: arguments as of `bfloat16_conv2d`, `x` of any rank, summed over its last axis."""
    lead = [int(size) for size in x.shape[:-1]]
    return _cropped(matmul_sums(kind, x, weights, _with_zeros), lead, channels)


def _with_zeros(x: Any, shape: Sequence[int], before: Sequence[int], groups: Groups) -> Any:
    if list(shape) == [int(size) for size in x.shape]:
        return x
    zero = tirx.const(0, "bfloat16")
    return padded(x, shape, before, lambda element: element, zero, f"{BFLOAT16.stage}_input", groups)


def _cropped(sums: Any, lead: Sequence[int], channels: int) -> Any:
    """Return the sums of a result's rows and channels, wherever the instruction leaves them."""
    if len(sums.shape) == len(lead) + 1 and padded_results(sums) == channels:
        return sums
    return te.compute(
        int64_sizes([*lead, channels]), lambda *indices: sum_at(sums, indices), name="bfloat16_cropped"
    )
