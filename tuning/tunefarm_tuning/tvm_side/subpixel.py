"""Transposed convolutions as convolutions: their outputs in phases, put side by side afterwards.

A transposed convolution of stride s scatters each input over a window. Seen from its outputs, those at places of equal
remainder by s are a plain convolution of the inputs, with every s-th weight (Shi et al., 2016, "Is the deconvolution layer
the same as a convolutional layer?"). All phases are one convolution with s² times the channels, which tunes like
any other, and can have channels last; TVM's own form can have neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm_side.rewriting import rewritten


def as_subpixels(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its two-dimensional transposed convolutions by constant weights in that form, where they have it.

    They have it without groups and dilation, where the shapes are known.
    """
    return rewritten(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        if (
            not isinstance(call.op, tvm.ir.Op)
            or call.op.name != "relax.nn.conv2d_transpose"
            or not _fits(call)
        ):
            return super().visit_call_(call)
        attributes, weight = call.attrs, call.args[1].value.numpy()
        _, _, *input_sizes = _sizes(call.args[0].ty.shape)
        batch, channels, *output_sizes = _sizes(call.ty.shape)
        strides = [int(stride) for stride in attributes.strides]
        first = [int(padding) for padding in attributes.padding][:2]
        taps = [-(-size // stride) for size, stride in zip(weight.shape[2:], strides, strict=True)]
        phases = [size + tap - 1 for size, tap in zip(input_sizes, taps, strict=True)]
        if any(
            start + size > stride * phase
            for start, size, stride, phase in zip(first, output_sizes, strides, phases, strict=True)
        ):
            return super().visit_call_(call)  # padded beyond what any input reaches

        padding = [tap - 1 for tap in taps] * 2
        made = relax.op.nn.conv2d(
            self.visit_expr(call.args[0]),
            relax.const(_phased(weight, strides, taps), str(weight.dtype)),
            padding=padding,
        )
        made = self.builder_.normalize(made)
        made = relax.op.reshape(self.builder_.emit(made), [batch, *strides, channels, *phases])
        made = relax.op.permute_dims(self.builder_.emit(made), [0, 3, 4, 1, 5, 2])
        whole = [stride * phase for stride, phase in zip(strides, phases, strict=True)]
        made = relax.op.reshape(self.builder_.emit(made), [batch, channels, *whole])
        if first == [0, 0] and whole == output_sizes:
            return self.builder_.normalize(made)
        last = [start + size for start, size in zip(first, output_sizes, strict=True)]
        return self.builder_.normalize(
            relax.op.strided_slice(self.builder_.emit(made), axes=[2, 3], begin=first, end=last)
        )


def _fits(call: Any) -> bool:
    attributes = call.attrs
    data, weight = call.args
    return (
        isinstance(weight, tvm.ir.GenericConst)
        and int(attributes.groups) == 1
        and [int(one) for one in attributes.dilation] == [1, 1]
        and (attributes.data_layout, attributes.kernel_layout) == ("NCHW", "IOHW")
        and attributes.out_layout in ("", "NCHW")
        and all(isinstance(size, tirx.IntImm) for shape in (data.ty.shape, call.ty.shape) for size in shape)
        and str(call.ty.dtype) == str(weight.value.dtype)
    )


def _phased(weight: NDArray[Any], strides: list[int], taps: list[int]) -> NDArray[Any]:
    """Return the weights of the convolution.

    Args:
        weight: ``[inputs, outputs, height, width]``.
        strides: Of both axes, as `taps` are.
        taps: How many weights a phase has at most.

    Returns:
        ``[stride · stride · outputs, inputs, taps, taps]``; the last tap comes first, as a convolution has it.
    """
    inputs, outputs, height, width = weight.shape
    (down, across), (rows, columns) = strides, taps
    padded = np.zeros((inputs, outputs, rows * down, columns * across), weight.dtype)
    padded[:, :, :height, :width] = weight
    split = padded.reshape(inputs, outputs, rows, down, columns, across)[:, :, ::-1, :, ::-1, :]
    return np.ascontiguousarray(
        split.transpose(3, 5, 1, 0, 2, 4).reshape(down * across * outputs, inputs, rows, columns)
    )


def _sizes(shape: Any) -> list[int]:
    return [int(size) for size in shape]
