"""Converters of operators on images: pools, transposed convolutions, regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.windows import max_pool_indices
from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    dtype_of,
    fixed_shape,
    full_rank,
    needed_shape,
    text,
)


def convert_conv_transpose(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ConvTranspose` with an `output_shape`, which TVM's converter ignores."""
    output_shape = attributes.get("output_shape")
    if output_shape is None:
        return None
    sizes = needed_shape(inputs[0])[2:]
    kernel = attributes.get("kernel_shape", needed_shape(inputs[1])[2:])
    ones = (1,) * len(sizes)
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    extra = list(attributes.get("output_padding", (0,) * len(sizes)))
    upper = text(attributes, "auto_pad", "NOTSET") == "SAME_UPPER"
    before, after = [], []
    for axis, size in enumerate(sizes):
        full = strides[axis] * (size - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = full - output_shape[len(output_shape) - len(sizes) + axis]
        if total < 0:
            extra[axis] -= total
            total = 0
        first = total // 2 if upper else total - total // 2
        before.append(first)
        after.append(total - first)
    others = {key: value for key, value in attributes.items() if key not in ("auto_pad", "output_shape")}
    others |= {"pads": (*before, *after), "output_padding": tuple(extra)}
    return context.convert("ConvTranspose", inputs, others, context.opset)


def convert_non_max_suppression(
    _context: NodeContext, _inputs: Sequence[Any], _attributes: dict[str, Any]
) -> Any:
    """Refuse `NonMaxSuppression`: TVM pads the result, or returns nothing if the limit is an input."""
    raise UnsupportedFormError(
        "it returns as many rows as boxes are left, which is not known before the model runs"
    )


def convert_max_pool(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `MaxPool` with the places of the maxima, which TVM's converter leaves out, or with automatic padding."""
    maxima = convert_pool("MaxPool")(context, inputs, attributes)
    if context.outputs < 2:
        return maxima
    if maxima is None:
        maxima = context.convert("MaxPool", inputs, attributes, context.opset)
    maxima = context.emit(maxima)
    padded = attributes | _explicit_padding(inputs[0], attributes)
    return relax.Tuple([maxima, max_pool_indices(context, inputs[0], needed_shape(maxima), padded)])


def convert_pool(operator: str) -> Converter:
    """Return the converter of a pool with automatic padding, for which TVM's converter omits a row in some cases."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        padding = _explicit_padding(inputs[0], attributes)
        if not padding:
            return None
        others = {key: value for key, value in attributes.items() if key not in ("auto_pad", "ceil_mode")}
        return context.convert(operator, inputs, others | padding, context.opset)

    return convert


def convert_conv(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Conv` with automatic padding, which TVM's converter computes as a step of its own."""
    if fixed_shape(inputs[0]) is None or fixed_shape(inputs[1]) is None:
        return None
    kernel = attributes.get("kernel_shape", fixed_shape(inputs[1])[2:])  # type: ignore[index]
    padding = _explicit_padding(inputs[0], attributes | {"kernel_shape": kernel})
    if not padding:
        return None
    others = {key: value for key, value in attributes.items() if key != "auto_pad"}
    return context.convert("Conv", inputs, others | padding, context.opset)


def _explicit_padding(x: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attribute `pads` of a window with automatic padding; nothing for other windows."""
    mode = text(attributes, "auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return {}
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", (1,) * len(kernel))
    # With a stride of 1 the padding does not depend on the size, which may be open then.
    all_ones = all(stride == 1 for stride in strides)
    sizes = (1,) * len(kernel) if all_ones else needed_shape(x)[2:]
    dilations = attributes.get("dilations", (1,) * len(sizes))
    before, after = [], []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((math.ceil(size / stride) - 1) * stride + (width - 1) * dilation + 1 - size, 0)
        first = total // 2 if mode == "SAME_UPPER" else total - total // 2
        before.append(first)
        after.append(total - first)
    return {"pads": (*before, *after)}


def convert_roi_align(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `RoiAlign`: TVM's converter moves regions by half a pixel before it scales them, and has another maximum."""
    if text(attributes, "mode", "avg") != "avg":
        raise UnsupportedFormError(
            "mode max is not supported: TVM takes the maximum of other values than ONNX"
        )
    default = "half_pixel" if context.opset >= 16 else "output_half_pixel"
    aligned = text(attributes, "coordinate_transformation_mode", default) == "half_pixel"
    scale = float(attributes.get("spatial_scale", 1.0))
    regions, dtype = inputs[1], dtype_of(inputs[1])
    if aligned:
        regions = context.emit(relax.op.subtract(regions, full_rank(0.5 / scale, 2, dtype)))
    batch = context.emit(relax.op.astype(context.emit(relax.op.expand_dims(inputs[2], 1)), dtype))
    samples = attributes.get("sampling_ratio", 0)
    means = relax.op.vision.roi_align(
        inputs[0],
        context.emit(relax.op.concat([batch, regions], axis=1)),
        pooled_size=(attributes.get("output_height", 1), attributes.get("output_width", 1)),
        spatial_scale=scale,
        sample_ratio=samples,
        aligned=aligned,
        layout="NCHW",
        mode="avg",
    )
    if samples > 0 or not aligned:  # regions have at least a sample, or a pixel
        return means
    zero = full_rank(0, 4, dtype_of(inputs[0]))
    return relax.op.where(_are_not_empty(context, regions), context.emit(means), zero)


def _are_not_empty(context: NodeContext, regions: Any) -> Any:
    """Return which of N regions have an area, N x 1 x 1 x 1. TVM's kernel has no samples in the others, and leaves their results unwritten."""
    emit, dtype = context.emit, dtype_of(regions)
    begins, ends = (emit(relax.op.strided_slice(regions, [1], [begin], [begin + 2], [1])) for begin in (0, 2))
    # Sides that rounding may turn into none are none: LLVM merges the products by the scale into the difference.
    largest = emit(relax.op.maximum(emit(relax.op.abs(begins)), emit(relax.op.abs(ends))))
    least = emit(relax.op.multiply(largest, full_rank(2 * np.finfo(dtype).eps, 2, dtype)))
    spare = emit(relax.op.subtract(emit(relax.op.subtract(ends, begins)), least))
    shortest = emit(relax.op.min(spare, axis=[1], keepdims=True))
    is_some = emit(relax.op.greater(shortest, full_rank(0, 2, dtype)))
    return emit(relax.op.expand_dims(is_some, [2, 3]))


def convert_space_to_depth(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `SpaceToDepth` with mode ``CRD``, which TVM's converter ignores."""
    if text(attributes, "mode", "DCR") != "CRD":
        return None
    batch, channels, height, width = needed_shape(inputs[0])
    block = attributes["blocksize"]
    rows, columns = height // block, width // block
    x = context.emit(relax.op.reshape(inputs[0], (batch, channels, rows, block, columns, block)))
    x = context.emit(relax.op.permute_dims(x, [0, 1, 3, 5, 2, 4]))
    return relax.op.reshape(x, (batch, channels * block * block, rows, columns))
