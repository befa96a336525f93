"""Products of float32: what TVM's rules make of a matrix product and a convolution, and the same cropped to the results that are wanted."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx, topi

from tunefarm_tuning.tvm.base.tir import int64_sizes


def float32_matmul(x: Any, weights: Any) -> Any:
    """Return the product of a tensor's last axis and a matrix, as TVM's rule for ``relax.matmul`` makes it."""
    *lead, depth = x.shape
    k = te.reduce_axis((tirx.IntImm("int64", 0), depth), name="k")
    return te.compute(
        [*lead, weights.shape[1]],
        lambda *indices: te.sum(x[(*indices[:-1], k)] * weights[k, indices[-1]], axis=k),
        name="matmul",
    )


def float32_conv2d(x: Any, weights: Any, **attributes: Any) -> Any:
    """Return an ungrouped 2-D convolution, channels last, with the `strides`, `padding` and `dilation`."""
    return topi.nn.conv2d(
        x, weights, **attributes, data_layout="NHWC", kernel_layout="HWIO", out_dtype="float32"
    )


def cropped(sums: Any, results: int, groups: int = 1) -> Any:
    """Return the first results of each group of channels (the last axis): `results` in all; the tensor itself if these are all."""
    *lead, computed = (int(size) for size in sums.shape)
    if computed == results:
        return sums
    size, room = results // groups, computed // groups

    def element(*indices: Any) -> Any:
        *where, result = indices
        if groups > 1:
            result = result // size * room + result % size
        return sums[(*where, result)]

    return te.compute(int64_sizes([*lead, results]), element, name="cropped")
