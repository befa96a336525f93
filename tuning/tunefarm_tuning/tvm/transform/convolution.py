"""Convolutions of a network, told apart by name, and made anew with some of their attributes changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relax

Layouts = tuple[str, str]

CHANNELS_FIRST: Mapping[str, Layouts] = MappingProxyType(
    {
        "relax.nn.conv1d": ("NCW", "OIW"),
        "relax.nn.conv2d": ("NCHW", "OIHW"),
        "relax.nn.conv3d": ("NCDHW", "OIDHW"),
    }
)
"""The layouts of data and weights that files have, by operator."""

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
    """Return the operator of a call that is a convolution in these layouts, its result in that of its data; None of others."""
    name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
    if name not in _MAKERS:
        return None
    data_layout, kernel_layout = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    fits = (data_layout, kernel_layout) == layouts[name] and str(call.attrs.out_layout) in ("", data_layout)
    return name if fits else None


def convolve(
    like: Any,
    data: Any,
    weights: Any,
    *,
    strides: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    layouts: Layouts | None = None,
) -> Any:
    """Return a convolution of other operands, and with other attributes where some are given.

    Args:
        like: A call of one.
        data: Its image.
        weights: Its kernels.
        strides: Along each axis.
        padding: At the start of each axis, then at the end of each.
        layouts: Of data (and result) and of weights.
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
    return [int(one) for one in values]
