"""Operators that slide a window over an image: convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.values import Blocks

_SAME, _VALID = 0, 1


def positive(op: OperatorContext, *names: str) -> list[int]:
    """Return options that must be above zero."""
    sizes = [int(op.option(name, 0)) for name in names]
    if any(not 0 < size < 1 << 20 for size in sizes):
        raise op.bad_file(f"{', '.join(names)} are {sizes}, which must be above zero")
    return sizes


def same_pads(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding before and after of TFLite's SAME: a window starts at every stride."""
    windows = -(-size // stride)
    total = max((windows - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _pads(
    op: OperatorContext, image: tuple[int, ...], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int]:
    padding = op.option("Padding")
    if padding == _VALID:
        return [0, 0, 0, 0]
    if padding != _SAME:
        raise op.bad_file(f"padding number {padding} is neither SAME nor VALID")
    top, bottom = same_pads(image[1], kernel[0], strides[0], dilations[0])
    left, right = same_pads(image[2], kernel[1], strides[1], dilations[1])
    return [top, left, bottom, right]


def _convolution(op: OperatorContext) -> None:
    image, weights = op.need_rank(0, 4), op.need_rank(1, 4)
    depthwise = op.operator.kind == "DEPTHWISE_CONV_2D"
    strides = positive(op, "StrideH", "StrideW")
    dilations = positive(op, "DilationHFactor", "DilationWFactor")
    kernel = [weights[1], weights[2]]
    pads = _pads(op, image, kernel, strides, dilations)
    source = op.index(0)
    if op.option("Padding") == _VALID:
        source, around = op.values.padding(source)
        pads = list(around)
    if depthwise:
        groups, perm = image[3], (3, 0, 1, 2)
    else:
        groups, perm = image[3] // weights[3] if weights[3] else 0, (0, 3, 1, 2)
    if groups < 1 or (image[3] % weights[3] if not depthwise else weights[3] % groups):
        raise op.bad_file(f"weights of shape {list(weights)} do not fit an image of {list(image)}")
    inputs = [op.values.arranged(op.index(1), perm)]
    if op.has(2):
        inputs.append(op.values.bias(op.index(2)))
    fields: dict[str, Any] = {"kernel_shape": kernel, "group": groups}
    blocks = op.values.blocks(op.index(0))
    if blocks is not None and max(strides + dilations) == 1 and not any(pads) and len(blocks[1]) == 2:
        op.values.note_dilated(op.output(), partial(_dilated, op, blocks, inputs, fields))
    x = op.values.get(source, first=True)
    result = op.node("Conv", x, *inputs, strides=strides, dilations=dilations, pads=pads, **fields)
    op.finish(op.activated(result), first=True)


def _dilated(
    op: OperatorContext,
    taken: Blocks,
    weights: Sequence[str],
    fields: Mapping[str, Any],
    blocks: list[int],
    crops: list[tuple[int, int]],
) -> str | None:
    """Return the convolution of a whole image that was cut into blocks, if it has the same blocks afterwards."""
    source, sizes, padding = taken
    pads = [
        [a - c for a, c in zip(around, crop, strict=True)]
        for around, crop in zip(padding, crops, strict=True)
    ]
    if sizes != blocks or any(size < 0 for side in pads for size in side):
        return None
    ends = [pads[0][0], pads[1][0], pads[0][1], pads[1][1]]
    x = op.values.get(source, first=True)
    return op.activated(op.node("Conv", x, *weights, dilations=blocks, pads=ends, **fields))


def _transposed_convolution(op: OperatorContext) -> None:
    weights, image = op.need_rank(1, 4), op.need_rank(2, 4)
    strides = positive(op, "StrideH", "StrideW")
    out = op.out_shape()
    kernel = [weights[1], weights[2]]
    if len(out) != 4 or weights[3] != image[3] or weights[0] != out[3]:
        raise op.bad_file(f"weights of shape {list(weights)} do not take {list(image)} to {list(out)}")
    pads = _pads(op, out, kernel, strides, [1, 1])
    full_shape = [(image[1 + i] - 1) * strides[i] + kernel[i] for i in range(2)]
    # rows that no window reaches have only the bias
    missing = [out[1 + i] - (full_shape[i] - pads[i] - pads[2 + i]) for i in range(2)]
    if any(not 0 <= size < strides[i] for i, size in enumerate(missing)):
        raise op.unsupported_form(f"an output of shape {list(out)} for an image of {list(image)}")
    inputs = [op.values.get(op.index(2), first=True), op.values.arranged(op.index(1), (3, 0, 1, 2))]
    if op.has(3):
        inputs.append(op.values.bias(op.index(3)))
    result = op.node(
        "ConvTranspose", *inputs, strides=strides, pads=pads, kernel_shape=kernel, output_padding=missing
    )
    op.finish(op.activated(result), first=True)


def _pool(op: OperatorContext) -> None:
    image = op.need_rank(0, 4)
    strides = positive(op, "StrideH", "StrideW")
    kernel = positive(op, "FilterHeight", "FilterWidth")
    pads = _pads(op, image, kernel, strides, [1, 1])
    kind = op.operator.kind
    x = op.values.get(op.index(0), first=True)
    if kind == "MAX_POOL_2D":
        result = op.node("MaxPool", x, strides=strides, pads=pads, kernel_shape=kernel)
    else:
        x = op.node("Mul", x, x) if kind == "L2_POOL_2D" else x
        result = op.node(
            "AveragePool", x, strides=strides, pads=pads, kernel_shape=kernel, count_include_pad=0
        )
        result = op.node("Sqrt", result) if kind == "L2_POOL_2D" else result
    op.finish(op.activated(result), first=True)


def _local_response_normalization(op: OperatorContext) -> None:
    op.need_rank(0, 4)
    size = 2 * int(op.option("Radius")) + 1
    bias, alpha, beta = (float(op.option(name, 0.0)) for name in ("Bias", "Alpha", "Beta"))
    if size < 1 or not np.all(np.isfinite([bias, alpha, beta])):
        raise op.bad_file("its options are not numbers to compute with")
    # ONNX divides alpha by the number of channels that are summed up.
    result = op.node(
        "LRN", op.values.get(op.index(0), first=True), size=size, bias=bias, alpha=alpha * size, beta=beta
    )
    op.finish(result, first=True)


CONVERTERS: Mapping[str, Converter] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "TRANSPOSE_CONV": _transposed_convolution,
    "MAX_POOL_2D": _pool,
    "AVERAGE_POOL_2D": _pool,
    "L2_POOL_2D": _pool,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response_normalization,
}
