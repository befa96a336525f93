"""Convolutions of any layout, with padding, strides, dilation of the image and of the kernel, and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.movement import cast, padded, reshaped, reversed_along, transposed
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.values import Value, splat
from tunefarm_tuning.core.array_file import numpy_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The movement of the kernel over the image, per spatial dimension."""

    strides: list[int]
    low: list[int]
    high: list[int]
    gaps: list[int]
    """Distance of the image's elements; more than 1 makes it a transposed convolution."""
    dilations: list[int]
    kernel: list[int]


def _convolution(op: OperatorContext) -> list[Value]:
    numbers = op.attribute("dimension_numbers")
    image, kernel = op.operands
    dtype = op.result().dtype
    if numpy_dtype(dtype).kind in "iub":
        raise UnsupportedFormError(f"of {dtype}")
    image, kernel = (cast(op.emit, value, dtype) for value in (image, kernel))
    spatial_dims = numbers["input_spatial_dimensions"]
    if not spatial_dims:
        raise UnsupportedFormError("without any dimension to slide along")
    image = transposed(
        image, [numbers["input_batch_dimension"], numbers["input_feature_dimension"], *spatial_dims]
    )
    kernel = transposed(
        kernel,
        [
            numbers["kernel_output_feature_dimension"],
            numbers["kernel_input_feature_dimension"],
            *numbers["kernel_spatial_dimensions"],
        ],
    )
    mirrored = [i + 2 for i, is_reversed in enumerate(op.ints("window_reversal", [])) if is_reversed]
    kernel = reversed_along(op.emit, kernel, mirrored)
    window = _window(op, kernel, len(spatial_dims))
    groups = int(op.attribute("feature_group_count", 1))
    image_groups = int(op.attribute("batch_group_count", 1))
    if image_groups > 1:
        image, groups = _batches_as_channels(op, image, image_groups), image_groups
    image, window = _cut(op, image, window)
    result = _transposed_convolution(op, image, kernel, window, groups)
    if result is None:
        image, window = _spaced(op, image, window)
        result = _plain_convolution(op, image, kernel, window, groups)
    # Dimension d of the result is dimension order[d] of the convolution.
    order = [0] * result.rank
    order[numbers["output_batch_dimension"]] = 0
    order[numbers["output_feature_dimension"]] = 1
    for i, dim in enumerate(numbers["output_spatial_dimensions"]):
        order[dim] = i + 2
    return [transposed(result, order)]


def _window(op: OperatorContext, kernel: Value, rank: int) -> _Window:
    ones = [1] * rank
    padding = op.ints("padding", [0] * 2 * rank)
    return _Window(
        strides=op.ints("window_strides", ones),
        low=padding[::2],
        high=padding[1::2],
        gaps=op.ints("lhs_dilation", ones),
        dilations=op.ints("rhs_dilation", ones),
        kernel=list(kernel.shape[2:]),
    )


def _batches_as_channels(op: OperatorContext, image: Value, groups: int) -> Value:
    size, channels, *spatial_shape = image.shape
    image = reshaped(op.emit, image, [groups, size // groups, channels, *spatial_shape])
    image = transposed(image, [1, 0, *range(2, image.rank)])
    return reshaped(op.emit, image, [size // groups, groups * channels, *spatial_shape])


def _around(image: Value, low: list[int], high: list[int], inner: list[int]) -> dict[str, Any]:
    return {
        "around": splat(0, image.dtype),
        "low": [0, 0, *low],
        "high": [0, 0, *high],
        "inner": [0, 0, *inner],
    }


def _cut(op: OperatorContext, image: Value, window: _Window) -> tuple[Value, _Window]:
    """Crop the image by negative padding, if the image is not dilated."""
    if all(n >= 0 for n in (*window.low, *window.high)):
        return image, window
    if any(gap > 1 for gap in window.gaps):
        return _spaced(op, image, window)
    none = [0] * len(window.low)
    low, high = [min(n, 0) for n in window.low], [min(n, 0) for n in window.high]
    image = padded(op.emit, image, **_around(image, low, high, none))
    low, high = [max(n, 0) for n in window.low], [max(n, 0) for n in window.high]
    return image, replace(window, low=low, high=high)


def _spaced(op: OperatorContext, image: Value, window: _Window) -> tuple[Value, _Window]:
    """Insert the zeros of the image's dilation and padding into the image."""
    if all(gap == 1 for gap in window.gaps):
        return image, window
    none = [0] * len(window.low)
    image = padded(
        op.emit, image, **_around(image, window.low, window.high, [gap - 1 for gap in window.gaps])
    )
    return image, replace(window, low=none, high=none, gaps=[1] * len(none))


def _plain_convolution(
    op: OperatorContext, image: Value, kernel: Value, window: _Window, groups: int
) -> Value:
    emit = op.emit
    spatial_shape = [
        (size + a + b - (k - 1) * d - 1) // s + 1
        for size, a, b, k, d, s in zip(
            image.shape[2:],
            window.low,
            window.high,
            window.kernel,
            window.dilations,
            window.strides,
            strict=True,
        )
    ]
    name = emit.node(
        "Conv",
        [emit.name(image), emit.name(kernel)],
        strides=window.strides,
        pads=[*window.low, *window.high],
        dilations=window.dilations,
        kernel_shape=window.kernel,
        group=groups,
    )
    return emit.computed(name, (image.shape[0], kernel.shape[0], *spatial_shape), image.dtype)


def _transposed_convolution(
    op: OperatorContext, image: Value, kernel: Value, window: _Window, groups: int
) -> Value | None:
    """Return the result of ONNX's ConvTranspose; None if it has no such form."""
    gaps = window.gaps
    if all(gap == 1 for gap in gaps) or any(stride > 1 for stride in window.strides):
        return None
    reach = [d * (k - 1) for d, k in zip(window.dilations, window.kernel, strict=True)]
    begin = [r - a for r, a in zip(reach, window.low, strict=True)]
    end = [r - b for r, b in zip(reach, window.high, strict=True)]
    missing = [max(-n, 0) for n in end]
    if any(n < 0 for n in begin) or any(n >= max(gap, 1) for n, gap in zip(missing, gaps, strict=True)):
        return None
    emit = op.emit
    outputs, inputs, *kernel_shape = kernel.shape
    spatial_dims = list(range(kernel.rank - 2))
    kernel = reversed_along(emit, kernel, [i + 2 for i in spatial_dims])
    # ONNX's kernel has the image's channels first, then the output channels of a group.
    kernel = reshaped(emit, kernel, [groups, outputs // groups, inputs, *kernel_shape])
    kernel = transposed(kernel, [0, 2, 1, *(i + 3 for i in spatial_dims)])
    kernel = reshaped(emit, kernel, [groups * inputs, outputs // groups, *kernel_shape])
    name = emit.node(
        "ConvTranspose",
        [emit.name(image), emit.name(kernel)],
        strides=gaps,
        pads=[*begin, *(max(n, 0) for n in end)],
        output_padding=missing,
        dilations=window.dilations,
        kernel_shape=kernel_shape,
        group=groups,
    )
    sizes = [
        (size - 1) * gap + 1 + r - max(b, 0) - a + m
        for size, gap, r, a, b, m in zip(image.shape[2:], gaps, reach, begin, end, missing, strict=True)
    ]
    return emit.computed(name, (image.shape[0], outputs, *sizes), image.dtype)


CONVERTERS: Mapping[str, Converter] = {"stablehlo.convolution": _convolution}
