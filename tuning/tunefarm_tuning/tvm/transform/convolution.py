"""Convolutions of a network: recognise them, and copy them with other operands or attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name

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
