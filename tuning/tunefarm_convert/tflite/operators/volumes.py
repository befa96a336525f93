"""Operators that slide a window over a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.operators.windows import positive, same_pads

_SAME = 0
_TO_FIRST = (0, 4, 1, 2, 3)
_TO_LAST = (0, 2, 3, 4, 1)


def volume_shape(op: OperatorContext) -> tuple[int, ...]:
    """Return the shape of the result of `CONV_3D`."""
    volume, weights = op.need_rank(0, 5), op.need_rank(1, 5)
    strides = positive(op, "StrideD", "StrideH", "StrideW")
    dilations = positive(op, "DilationDFactor", "DilationHFactor", "DilationWFactor")
    sizes = []
    for size, kernel, stride, dilation in zip(volume[1:4], weights[:3], strides, dilations, strict=True):
        used = size if op.option("Padding") == _SAME else size - (kernel - 1) * dilation
        if used < 1:
            raise op.bad_file(f"weights of shape {list(weights)} are larger than {list(volume)}")
        sizes.append(-(-used // stride))
    return (volume[0], *sizes, weights[4])


def _convolution(op: OperatorContext) -> None:
    volume, weights = op.need_rank(0, 5), op.need_rank(1, 5)
    strides = positive(op, "StrideD", "StrideH", "StrideW")
    dilations = positive(op, "DilationDFactor", "DilationHFactor", "DilationWFactor")
    if weights[3] != volume[4]:
        raise op.bad_file(f"weights of shape {list(weights)} do not fit a volume of {list(volume)}")
    pads = [(0, 0)] * 3
    if op.option("Padding") == _SAME:
        sizes = zip(volume[1:4], weights[:3], strides, dilations, strict=True)
        pads = [same_pads(*size) for size in sizes]
    _convolve(op, "Conv", 0, weights, pads, strides=strides, dilations=dilations)


def _transposed_convolution(op: OperatorContext) -> None:
    weights, volume = op.need_rank(1, 5), op.need_rank(2, 5)
    strides = positive(op, "StrideD", "StrideH", "StrideW")
    dilations = positive(op, "DilationDFactor", "DilationHFactor", "DilationWFactor")
    out = op.out_shape()
    if len(out) != 5 or weights[4] != volume[4] or weights[3] != out[4]:
        raise op.bad_file(f"weights of shape {list(weights)} do not take {list(volume)} to {list(out)}")
    pads, missing = [(0, 0)] * 3, []
    for axis, (kernel, stride, dilation) in enumerate(zip(weights[:3], strides, dilations, strict=True)):
        if op.option("Padding") == _SAME:
            pads[axis] = same_pads(out[1 + axis], kernel, stride, dilation)
        full = (volume[1 + axis] - 1) * stride + (kernel - 1) * dilation + 1
        # rows that no window reaches have only the bias
        missing.append(out[1 + axis] - (full - sum(pads[axis])))
    if any(not 0 <= size < stride for size, stride in zip(missing, strides, strict=True)):
        raise op.unsupported_form(f"an output of shape {list(out)} for a volume of {list(volume)}")
    _convolve(
        op, "ConvTranspose", 2, weights, pads, strides=strides, dilations=dilations, output_padding=missing
    )


def _convolve(
    op: OperatorContext,
    kind: str,
    volume: int,
    weights: Sequence[int],
    pads: Sequence[tuple[int, int]],
    **attributes: Sequence[int],
) -> None:
    """Write the convolution of the volume with the weights of input 1; a bias may be the last input, after both."""
    inputs = [
        op.values.arranged(op.index(volume), _TO_FIRST),
        op.values.arranged(op.index(1), (4, 3, 0, 1, 2)),
    ]
    bias = max(volume, 1) + 1
    if op.has(bias):
        inputs.append(op.values.bias(op.index(bias)))
    result = op.node(
        kind,
        *inputs,
        pads=[before for before, _ in pads] + [after for _, after in pads],
        kernel_shape=list(weights[:3]),
        **attributes,
    )
    op.finish(op.node("Transpose", op.activated(result), perm=list(_TO_LAST)))


CONVERTERS: Mapping[str, Converter] = {"CONV_3D": _convolution, "CONV_3D_TRANSPOSE": _transposed_convolution}
