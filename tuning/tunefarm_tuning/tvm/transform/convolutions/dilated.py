"""Compute each tap of a dilated convolution by itself where most of its taps read padding.

DeepLab's 3x3 kernel dilated by 12 over an image of 14 x 14 pixels reads the image in a fifth of its products, and zeros around it in the
others. The tap in the middle reaches all pixels, one beside it two rows, one in a corner four pixels. So each tap is a pointwise
convolution of the part of the image that it reaches, whose results are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_calls, static_shape, tensor_dtype
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_LAST,
    convolution_name,
    convolve,
    geometry,
    groups_of,
)

DTYPE = "float32"
_MOST_SHARE = 0.5
"""The share of products that read the image from which the convolution stays as it is: small ones are slower, and their sum takes time."""
_LEAST_PRODUCTS = 1 << 24
"""With fewer products, the convolution takes a fraction of a millisecond."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """What a tap reaches along an axis: results from `begin` to `end`, of pixels that lie `shift` behind them."""

    begin: int
    end: int
    shift: int

    @classmethod
    def of(cls, ahead: int, *, pixels: int, results: int) -> _Reach:
        """Return it for a tap whose first pixel lies so many ahead of the image."""
        begin = min(max(ahead, 0), results)
        return cls(begin, max(begin, min(results, pixels + ahead)), -ahead)

    @property
    def count(self) -> int:
        """Number of results."""
        return self.end - self.begin


def split_dilated_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a channels-last network whose dilated convolutions over small images are sums of pointwise ones."""
    return rewrite_calls(mod, _split)


def _split(call: Any, builder: Any) -> Any:
    reaches = _reaches_of(call)
    if reaches is None:
        return call
    weights = call.args[1].value.numpy()
    _, *sizes, _ = static_shape(call) or ()
    taps = [
        ((along_rows, along_columns), np.ascontiguousarray(weights[row : row + 1, column : column + 1]))
        for (row, along_rows), (column, along_columns) in product(*map(enumerate, reaches))
        if along_rows.count and along_columns.count
    ]
    # The largest part comes first: it is padded least, as a rule not at all.
    taps.sort(key=lambda tap: -prod(axis.count for axis in tap[0]))
    total = None
    for reach, tap_weights in taps:
        begin = [axis.begin + axis.shift for axis in reach]
        end = [axis.end + axis.shift for axis in reach]
        part = builder.emit(relax.op.strided_slice(call.args[0], axes=[1, 2], begin=begin, end=end))
        result = builder.emit(convolve(call, part, relax.const(tap_weights), padding=[0, 0, 0, 0]))
        around = [
            width for axis, size in zip(reach, sizes, strict=True) for width in (axis.begin, size - axis.end)
        ]
        if any(around):
            result = builder.emit(relax.op.nn.pad(result, [0, 0, *around, 0, 0]))
        total = result if total is None else builder.emit(relax.op.add(total, result))
    return call if total is None else total


def _reaches_of(call: Any) -> tuple[Sequence[_Reach], Sequence[_Reach]] | None:
    """Return what the taps of a dilated convolution reach, by row and by column; None for any other call, and where it stays as it is."""
    if convolution_name(call, CHANNELS_LAST) != "relax.nn.conv2d" or groups_of(call) != 1:
        return None
    before, after = static_shape(call.args[0]), static_shape(call)
    where = geometry(call)
    if before is None or after is None or max(where["dilation"]) == 1 or max(where["strides"]) > 1:
        return None
    if tensor_dtype(call) != DTYPE or not isinstance(call.args[1], tvm.ir.GenericConst):
        return None
    weights = call.args[1].value.numpy()
    rows, columns = (
        [
            _Reach.of(ahead - tap * dilation, pixels=before[1 + axis], results=after[1 + axis])
            for tap in range(weights.shape[axis])
        ]
        for axis, (dilation, ahead) in enumerate(zip(where["dilation"], where["padding"], strict=False))
    )
    pairs = sum(reach.count for reach in rows) * sum(reach.count for reach in columns)
    all_pairs = len(rows) * len(columns) * prod(after[1:3])
    products = after[0] * all_pairs * prod(weights.shape[2:])
    pays = pairs <= _MOST_SHARE * all_pairs and products >= _LEAST_PRODUCTS
    # Padding times NaN or infinity is not zero.
    return (rows, columns) if pays and pairs and np.isfinite(weights).all() else None
