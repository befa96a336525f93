"""Convolutions and products by a matrix whose results fill no whole vectors: the 85 channels of a detector, the 6,625 characters of a recogniser.

The end of such a loop cuts a vector, and LLVM computes what is left by elements: a convolution to 85 channels took seven times as long as
to 88. Zeros are appended to the weights, and the kernel crops its result where it is stored, with the element-wise steps behind it.
A depthwise convolution reads zeros, too: its input is copied into a border anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, topi

from tunefarm_tuning.tvm.base.relax_graph import operator_name, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.float32_products import cropped, float32_conv2d, float32_matmul
from tunefarm_tuning.tvm.kernels.legalize import Legalize
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_LAST,
    convolution_name,
    geometry,
    groups_of,
    is_depthwise,
)

_LANES = 8
"""Half a vector of AVX-512, two of NEON. The same for all CPUs, since a farm shares the tasks of a model among them. Groups of fewer
results stay: `narrow_convolution` has these."""
_HALF, _MAX_PADDING = 2, 1 / 5
"""Results that are a multiple of half a vector lose less: padding them by more than this share does not pay."""
_PANEL, _PANEL_BYTES, _MAX_PANEL_PADDING = 64, 256 << 10, 1 / 16
"""Columns of the widest tiles of the default schedules, and the bytes from which on a matrix is packed into panels of as many columns."""
_MIN_WORK, _MIN_MATRIX_BYTES = 1 << 14, 64 << 10
"""Fewest products, and smallest matrix: kernels below take a few microseconds."""


def _legalize(builder: Any, call: Any) -> Any:
    """Return the kernel of a product; TVM's own where the results fill whole vectors, or nothing is known of the weights."""
    padded = _padded(call)
    name = operator_name(call)
    if padded is None:
        return tvm.ir.Op.get(name).get_attr("FLegalize")(builder, call)
    results = int(call.args[1].ty.shape[-1])
    compute = _depthwise if is_depthwise(call) else _sums
    groups = 1 if is_depthwise(call) else groups_of(call)
    return builder.call_te(
        lambda x, weights: cropped(compute(call, x, weights), results, groups),
        call.args[0],
        relax.const(padded, "float32"),
        primfunc_name_hint=f"ragged_{name.rpartition('.')[2]}",
    )


def _depthwise(call: Any, x: Any, weights: Any) -> Any:
    """Return a depthwise convolution whose input gets the channels of zeros with its border."""
    attributes, channels = geometry(call), int(weights.shape[-1])
    above, left, below, right = attributes["padding"]
    ends = [0, below, right, channels - int(x.shape[-1])]
    wide = topi.nn.pad(x, [0, above, left, 0], ends)
    return topi.nn.conv(
        wide,
        weights,
        attributes["strides"],
        [0] * 4,
        attributes["dilation"],
        channels,
        "NHWC",
        "HWIO",
        "float32",
    )


def _sums(call: Any, x: Any, weights: Any) -> Any:
    if operator_name(call) == "relax.matmul":
        return float32_matmul(x, weights)
    attributes, groups = geometry(call), groups_of(call)
    if operator_name(call) == "relax.nn.conv2d" and groups == 1:
        return float32_conv2d(x, weights, **attributes)
    return topi.nn.conv(
        x,
        weights,
        *attributes.values(),
        groups,
        str(call.attrs.data_layout),
        str(call.attrs.kernel_layout),
        "float32",
    )


def _padded(call: Any) -> NDArray[Any] | None:
    """Return the weights with zeros behind the results of each group; None if the kernel stays as it is."""
    data, weights = call.args
    out, read = static_shape(call), static_shape(data)
    if out is None or read is None or not isinstance(weights, tvm.ir.GenericConst):
        return None
    is_convolution = operator_name(call) != "relax.matmul"
    if is_convolution and convolution_name(call, CHANNELS_LAST) is None:
        return None
    array, groups = weights.value, 1 if is_depthwise(call) else groups_of(call)
    if str(array.dtype) != "float32" or tensor_dtype(data) != "float32" or len(array.shape) < 2:
        return None
    *taps, results = (int(size) for size in array.shape)
    matrix_bytes = 0 if is_convolution else 4 * prod(taps) * results
    if 0 in out or (not is_convolution and (len(taps) != 1 or matrix_bytes < _MIN_MATRIX_BYTES)):
        return None
    padding = _padding(results // groups, matrix_bytes)
    if is_depthwise(call) and results % (_LANES // _HALF) == 0:
        return None  # the copies of its input with zeros take longer
    if padding == 0 or prod(out) * prod(taps) < _MIN_WORK:
        return None
    grouped = array.numpy().reshape(*taps, groups, results // groups)
    zeros = [(0, 0)] * (grouped.ndim - 1)
    return np.pad(grouped, [*zeros, (0, padding)]).reshape(*taps, -1)


def _padding(results: int, matrix_bytes: int) -> int:
    """Return the zeros to append to the results of a group."""
    if results < _LANES or results % _LANES == 0:
        return 0
    for_panels = -results % _PANEL
    if matrix_bytes >= _PANEL_BYTES and for_panels <= results * _MAX_PANEL_PADDING:
        return for_panels
    padding = -results % _LANES
    return padding if results % (_LANES // _HALF) or padding <= results * _MAX_PADDING else 0


RAGGED_PRODUCTS: Mapping[str, Legalize] = MappingProxyType(
    dict.fromkeys(("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul"), _legalize)
)
"""Rules of the operators whose weights are padded."""
