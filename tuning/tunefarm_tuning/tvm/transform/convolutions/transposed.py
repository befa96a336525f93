"""Replace transposed convolutions by sub-pixel convolutions: a convolution, and a shuffle of its channels into pixels.

A transposed convolution of stride s scatters each input over a window. Its outputs at positions of equal remainder by s (a phase) are a
plain convolution of the inputs, with every s-th weight (Shi et al., 2016, "Is the deconvolution layer the same as a convolutional
layer?"). All phases are one convolution with s² times the channels (sⁿ for n axes), which tunes like any other, and can have channels
last; TVM's own kernel can do neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_calls

_CONVOLUTIONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d, "NCW", "IOW"),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d, "NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": (relax.op.nn.conv3d, "NCDHW", "IODHW"),
}
"""The plain convolution and the supported layouts of data and weights, by operator."""

_LEAST_OF_A_GROUP = 16


def decompose_transposed_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its transposed convolutions replaced by sub-pixel convolutions.

    Those by constant weights, of static shapes, along each axis without stride or without dilation are replaced; of groups, those of
    16 channels or more: smaller ones, as of depthwise convolutions, fill vectors worse than their image is shuffled (1.5 to 2.4 times
    as long on a Zen 3).
    """
    return rewrite_calls(mod, _decompose)


def _decompose(call: Any, builder: Any) -> Any:
    name = operator_name(call)
    if name not in _CONVOLUTIONS or not _is_supported(call):
        return call
    attributes, weight = call.attrs, call.args[1].value.numpy()
    _, _, *input_sizes = _sizes(call.args[0].ty.shape)
    batch, channels, *output_sizes = _sizes(call.ty.shape)
    strides, groups = [int(stride) for stride in attributes.strides], int(attributes.groups)
    begin = [int(padding) for padding in attributes.padding][: len(strides)]
    dilation = [int(width) for width in attributes.dilation]
    taps = [-(-size // stride) for size, stride in zip(weight.shape[2:], strides, strict=True)]
    reach = [(tap - 1) * width for tap, width in zip(taps, dilation, strict=True)]
    phase_sizes = [size + more for size, more in zip(input_sizes, reach, strict=True)]
    if any(
        start + size > stride * phase_size
        for start, size, stride, phase_size in zip(begin, output_sizes, strides, phase_sizes, strict=True)
    ):
        return call  # padded beyond what any input reaches

    convolve, _, _ = _CONVOLUTIONS[name]
    result = convolve(
        call.args[0],
        relax.const(_phase_weights(weight, groups, strides, taps), str(weight.dtype)),
        padding=reach * 2,
        dilation=dilation,
        groups=groups,
    )
    result = builder.normalize(result)
    lead = [batch, groups] if groups > 1 else [batch]
    result = relax.op.reshape(builder.emit(result), [*lead, *strides, channels // groups, *phase_sizes])
    axes = range(1, len(strides) + 1)
    channel = len(lead) + len(strides)
    position_and_phase = [source for axis in axes for source in (channel + axis, len(lead) - 1 + axis)]
    result = relax.op.permute_dims(builder.emit(result), [*range(len(lead)), channel, *position_and_phase])
    full_sizes = [stride * phase_size for stride, phase_size in zip(strides, phase_sizes, strict=True)]
    result = relax.op.reshape(builder.emit(result), [batch, channels, *full_sizes])
    if not any(begin) and full_sizes == output_sizes:
        return builder.normalize(result)
    end = [start + size for start, size in zip(begin, output_sizes, strict=True)]
    return builder.normalize(
        relax.op.strided_slice(builder.emit(result), axes=[1 + axis for axis in axes], begin=begin, end=end)
    )


def _is_supported(call: Any) -> bool:
    attributes = call.attrs
    data, weight = call.args
    _, layout, kernel_layout = _CONVOLUTIONS[call.op.name]
    return (
        isinstance(weight, tvm.ir.GenericConst)
        and (attributes.groups == 1 or _channels_of_a_group(call) >= _LEAST_OF_A_GROUP)
        and all(1 in pair for pair in zip(attributes.strides, attributes.dilation, strict=True))
        and (attributes.data_layout, attributes.kernel_layout) == (layout, kernel_layout)
        and attributes.out_layout in ("", layout)
        and all(isinstance(size, tirx.IntImm) for shape in (data.ty.shape, call.ty.shape) for size in shape)
        and str(call.ty.dtype) == str(weight.value.dtype)
    )


def _channels_of_a_group(call: Any) -> int:
    """Return how many channels a group takes or gives, whichever is less."""
    inputs, outputs, *_ = _sizes(call.args[1].ty.shape)
    return min(inputs // int(call.attrs.groups), outputs)


def _phase_weights(weight: NDArray[Any], groups: int, strides: list[int], taps: list[int]) -> NDArray[Any]:
    """Return weights ``[inputs, outputs of a group, *sizes]`` for the convolution that computes all phases, of up to `taps` each.

    Returns:
        ``[groups · product of strides · outputs, inputs of a group, *taps]``, its taps in reverse order, as a convolution has them.
    """
    inputs, outputs, *sizes = weight.shape
    missing = [tap * stride - size for tap, stride, size in zip(taps, strides, sizes, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *((0, width) for width in missing)])
    split_sizes = [size for pair in zip(taps, strides, strict=True) for size in pair]
    own = inputs // groups
    tap_axes = [3 + 2 * axis for axis in range(len(taps))]
    split = np.flip(padded.reshape(groups, own, outputs, *split_sizes), tuple(tap_axes))
    phases = split.transpose(0, *(1 + axis for axis in tap_axes), 2, 1, *tap_axes)
    return np.ascontiguousarray(phases.reshape(-1, own, *taps))


def _sizes(shape: Any) -> list[int]:
    return [int(size) for size in shape]
