"""Convolutions of a network: recognise them, and copy them with other operands or attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.dot_products import Runs, runs_of

Layouts = tuple[str, str]

CHANNELS_FIRST: Mapping[str, Layouts] = MappingProxyType(
    {
        "relax.nn.conv1d": ("NCW", "OIW"),
        "relax.nn.conv2d": ("NCHW", "OIHW"),
        "relax.nn.conv3d": ("NCDHW", "OIDHW"),
    }
)
"""The layouts of data and weights in ONNX files, by operator."""

CHANNELS_LAST: Mapping[str, Layouts] = MappingProxyType(
    {
        "relax.nn.conv1d": ("NWC", "WIO"),
        "relax.nn.conv2d": ("NHWC", "HWIO"),
        "relax.nn.conv3d": ("NDHWC", "DHWIO"),
    }
)

_MAKERS: Mapping[str, Callable[..., Any]] = {
    "relax.nn.conv1d": relax.op.nn.conv1d,
    "relax.nn.conv2d": relax.op.nn.conv2d,
    "relax.nn.conv3d": relax.op.nn.conv3d,
}


def convolution_name(call: Any, layouts: Mapping[str, Layouts]) -> str | None:
    """Return the operator of a convolution in these layouts, with data and result in the same layout; None for any other call."""
    name = operator_name(call)
    if name not in _MAKERS:
        return None
    data_layout, kernel_layout = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    matches = (data_layout, kernel_layout) == layouts[name]
    return name if matches and str(call.attrs.out_layout) in ("", data_layout) else None


def is_depthwise(call: Any) -> bool:
    """Return whether a call is a 2-D convolution of floats, channels last, with a result per channel."""
    if convolution_name(call, CHANNELS_LAST) != "relax.nn.conv2d" or tensor_dtype(call) != "float32":
        return False
    before, after = static_shape(call.args[0]), static_shape(call)
    return before is not None and after is not None and 1 < groups_of(call) == before[3] == after[3]


def groups_of(call: Any) -> int:
    """Return the groups of a convolution's channels; 1 for any other product."""
    return int(call.attrs.groups) if operator_name(call) in _MAKERS else 1


def instructions_of_groups(
    groups: int, depth: int, results: int, merged: int, *, lanes: int, products: int, rows: int
) -> float:
    """Return how many instructions of dot products a row of a grouped convolution takes for each tap.

    Args:
        groups: Of channels.
        depth: Channels that each reads.
        results: Results that each has.
        merged: Groups that are computed as one.
        lanes: Sums of an instruction.
        products: Products that it adds to each.
        rows: Rows that it takes.
    """
    return ceil(groups / merged) * ceil(merged * results / lanes) * ceil(merged * depth / products) / rows


def runs_of_call(call: Any, products: int, channels: int | None = None) -> Runs | None:
    """Return the runs of an ungrouped convolution; None for any other product, or where columns are computed one by one.

    Args:
        call: A product.
        products: The products that an instruction adds up.
        channels: Of the part of the call's inputs that is computed; all of them by default.
    """
    if operator_name(call) not in _MAKERS or groups_of(call) > 1:
        return None
    *_, columns, all_channels, _ = (int(size) for size in call.args[1].ty.shape)
    return runs_of(
        all_channels if channels is None else channels, columns, int(call.attrs.dilation[-1]), products
    )


def geometry(call: Any) -> dict[str, Any]:
    """Return a convolution's strides, padding and dilation, by these names."""
    attributes = call.attrs
    return {name: _numbers(getattr(attributes, name)) for name in ("strides", "padding", "dilation")}


def convolve(
    like: Any,
    data: Any,
    weights: Any,
    *,
    strides: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    layouts: Layouts | None = None,
) -> Any:
    """Return a convolution of other operands, with a given convolution's attributes except those that are given.

    Args:
        like: The given convolution.
        data: The images.
        weights: The kernels.
        strides: One for each axis.
        padding: At the start of each axis, then at the end of each.
        layouts: Layouts of data (and result) and of weights.
    """
    attributes = like.attrs
    data_layout, kernel_layout = layouts or (str(attributes.data_layout), str(attributes.kernel_layout))
    return _MAKERS[like.op.name](
        data,
        weights,
        strides=_numbers(attributes.strides if strides is None else strides),
        padding=_numbers(attributes.padding if padding is None else padding),
        dilation=_numbers(attributes.dilation),
        groups=int(attributes.groups),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=data_layout,
        out_dtype=attributes.out_dtype,
    )


def _numbers(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]
