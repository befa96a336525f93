"""Transposed convolutions as convolutions: their outputs in phases, put side by side afterwards.

A transposed convolution of stride s scatters each input over a window. Seen from its outputs, those at places of equal
remainder by s are a plain convolution of the inputs, with every s-th weight (Shi et al., 2016, "Is the deconvolution layer
the same as a convolutional layer?"). All phases are one convolution with s² times the channels (of images; of n axes, sⁿ),
which tunes like any other, and can have channels last; TVM's own form can have neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main

_CONVOLUTIONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d, "NCW", "IOW"),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d, "NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": (relax.op.nn.conv3d, "NCDHW", "IODHW"),
}
"""By the transposed one's name: the plain one, and the layouts that this is written for."""


def as_subpixels(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its transposed convolutions by constant weights in that form, where they have it.

    They have it without groups and dilation, where the shapes are known.
    """
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name not in _CONVOLUTIONS or not _fits(call):
            return super().visit_call_(call)
        attributes, weight = call.attrs, call.args[1].value.numpy()
        _, _, *input_sizes = _sizes(call.args[0].ty.shape)
        batch, channels, *output_sizes = _sizes(call.ty.shape)
        strides = [int(stride) for stride in attributes.strides]
        first = [int(padding) for padding in attributes.padding][: len(strides)]
        taps = [-(-size // stride) for size, stride in zip(weight.shape[2:], strides, strict=True)]
        phases = [size + tap - 1 for size, tap in zip(input_sizes, taps, strict=True)]
        if any(
            start + size > stride * phase
            for start, size, stride, phase in zip(first, output_sizes, strides, phases, strict=True)
        ):
            return super().visit_call_(call)  # padded beyond what any input reaches

        padding = [tap - 1 for tap in taps] * 2
        convolve, _, _ = _CONVOLUTIONS[name]
        made = convolve(
            self.visit_expr(call.args[0]),
            relax.const(_phased(weight, strides, taps), str(weight.dtype)),
            padding=padding,
        )
        made = self.builder_.normalize(made)
        made = relax.op.reshape(self.builder_.emit(made), [batch, *strides, channels, *phases])
        axes = range(1, len(strides) + 1)
        pairs = [one for axis in axes for one in (len(axes) + 1 + axis, axis)]
        made = relax.op.permute_dims(self.builder_.emit(made), [0, len(axes) + 1, *pairs])
        whole = [stride * phase for stride, phase in zip(strides, phases, strict=True)]
        made = relax.op.reshape(self.builder_.emit(made), [batch, channels, *whole])
        if not any(first) and whole == output_sizes:
            return self.builder_.normalize(made)
        last = [start + size for start, size in zip(first, output_sizes, strict=True)]
        return self.builder_.normalize(
            relax.op.strided_slice(
                self.builder_.emit(made), axes=[1 + axis for axis in axes], begin=first, end=last
            )
        )


def _fits(call: Any) -> bool:
    attributes = call.attrs
    data, weight = call.args
    _, layout, kernel_layout = _CONVOLUTIONS[call.op.name]
    return (
        isinstance(weight, tvm.ir.GenericConst)
        and int(attributes.groups) == 1
        and all(int(one) == 1 for one in attributes.dilation)
        and (attributes.data_layout, attributes.kernel_layout) == (layout, kernel_layout)
        and attributes.out_layout in ("", layout)
        and all(isinstance(size, tirx.IntImm) for shape in (data.ty.shape, call.ty.shape) for size in shape)
        and str(call.ty.dtype) == str(weight.value.dtype)
    )


def _phased(weight: NDArray[Any], strides: list[int], taps: list[int]) -> NDArray[Any]:
    """Return the weights of the convolution.

    Args:
        weight: ``[inputs, outputs, *sizes]``.
        strides: Of all axes, as `taps` are.
        taps: How many weights a phase has at most.

    Returns:
        ``[product of strides · outputs, inputs, *taps]``; the last tap comes first, as a convolution has it.
    """
    inputs, outputs, *sizes = weight.shape
    rests = [tap * stride - size for tap, stride, size in zip(taps, strides, sizes, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *((0, rest) for rest in rests)])
    pairs = [one for pair in zip(taps, strides, strict=True) for one in pair]
    of_taps = [2 + 2 * axis for axis in range(len(taps))]
    split = np.flip(padded.reshape(inputs, outputs, *pairs), tuple(of_taps))
    phases = split.transpose(*(1 + place for place in of_taps), 1, 0, *of_taps)
    return np.ascontiguousarray(phases.reshape(-1, inputs, *taps))


def _sizes(shape: Any) -> list[int]:
    return [int(size) for size in shape]
