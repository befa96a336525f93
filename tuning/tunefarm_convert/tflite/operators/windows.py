"""Operators that slide a window over an image: convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext

_SAME, _VALID = 0, 1


def _positive(op: OperatorContext, *names: str) -> list[int]:
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
    strides = _positive(op, "StrideH", "StrideW")
    dilations = _positive(op, "DilationHFactor", "DilationWFactor")
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
    inputs = [op.values.get(source, first=True), op.values.arranged(op.index(1), perm)]
    if op.has(2):
        inputs.append(op.values.bias(op.index(2)))
    result = op.node(
        "Conv", *inputs, strides=strides, dilations=dilations, pads=pads, kernel_shape=kernel, group=groups
    )
    op.finish(op.activated(result), first=True)


def _transposed_convolution(op: OperatorContext) -> None:
    weights, image = op.need_rank(1, 4), op.need_rank(2, 4)
    strides = _positive(op, "StrideH", "StrideW")
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
    strides = _positive(op, "StrideH", "StrideW")
    kernel = _positive(op, "FilterHeight", "FilterWidth")
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
        raise op.bad_file("its options are no numbers to compute with")
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
