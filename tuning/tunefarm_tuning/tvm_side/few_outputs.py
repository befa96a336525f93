"""Convolutions with few output channels made wider: neighbouring pixels of a row are computed as channels.

Vectors run along output channels, and an image's three leave thirteen of sixteen lanes idle. Four neighbouring pixels' are twelve:
a convolution of four times the stride, whose kernels are those of the few channels, each shifted by one pixel more. It multiplies
by zeros where a kernel does not reach, and is faster where its kernels are few lanes and more than one pixel wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.target import Target
from tunefarm_tuning.tvm_side.convolution import CHANNELS_LAST, convolution_name, convolve
from tunefarm_tuning.tvm_side.default_schedule_stage import Machine
from tunefarm_tuning.tvm_side.moved import sizes
from tunefarm_tuning.tvm_side.rewriting import rewritten

_WORTH = 0.7
"""Of the vector operations as it stands, what the wider one may have at most: its pixels are put side by side again afterwards."""
_FEWEST_SUMMED = 1 << 18  # of vectors: below that a kernel takes some tens of microseconds, whatever it does


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conv:
    """A convolution of images with channels last by constant weights.

    Attributes:
        stride: Along a row.
        out: Its result's sizes: images, rows, pixels, channels.
        weights: ``[rows, pixels, inputs, outputs]``.
    """

    stride: int
    out: tuple[int, ...]
    weights: NDArray[Any]

    @property
    def width(self) -> int:
        """Of its kernels, in pixels."""
        return int(self.weights.shape[1])

    def vectors(self, pixels: int, lanes: int) -> float:
        """Return the vector operations of a pixel, for each input and row of the kernel, with so many as channels."""
        filled = -(-pixels * self.out[3] // lanes)
        return filled * (self.width + (pixels - 1) * self.stride) / pixels

    def best_pixels(self, lanes: int) -> int:
        """Return how many pixels to compute as channels: 1 where it is best as it is."""
        fitting = [one for one in range(2, lanes + 1) if self.out[2] % one == 0]
        best = min(fitting, key=lambda one: self.vectors(one, lanes), default=1)
        return best if self.vectors(best, lanes) <= _WORTH * self.vectors(1, lanes) else 1


def widen_few_outputs(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return the module with its convolutions of fewer output channels than a vector has lanes made wider, where that pays.

    Args:
        mod: A network laid out with channels last, its weights folded.
        target: A CPU.
    """
    return rewritten(mod, _Rewriter(mod, Machine.of(target).lanes("float32")))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, lanes: int) -> None:
        super().__init__(mod)
        self._lanes = lanes

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        conv = _match(visited, self._lanes)
        pixels = conv.best_pixels(self._lanes) if conv is not None else 1
        if conv is None or pixels == 1:
            return visited
        images, rows, width, channels = conv.out
        shifted = _shifted(conv, pixels, self._lanes)
        strides = [int(visited.attrs.strides[0]), pixels * conv.stride]
        made = self.builder_.emit(
            convolve(visited, visited.args[0], relax.const(shifted, "float32"), strides=strides)
        )
        if shifted.shape[3] != pixels * channels:
            made = self.builder_.emit(relax.op.strided_slice(made, [3], [0], [pixels * channels]))
        return self.builder_.normalize(relax.op.reshape(made, [images, rows, width, channels]))


def _match(call: Any, lanes: int) -> _Conv | None:
    """Return the convolution that a call is; None where it is none that may be made wider."""
    if convolution_name(call, CHANNELS_LAST) != "relax.nn.conv2d":
        return None
    attributes, (data, weights) = call.attrs, call.args
    out = sizes(call)
    if (
        not isinstance(weights, tvm.ir.GenericConst)
        or str(weights.value.dtype) != "float32"
        or out is None
        or sizes(data) is None
        or int(attributes.groups) != 1
        or int(attributes.dilation[1]) != 1
        or out[3] >= lanes
    ):
        return None
    conv = _Conv(stride=int(attributes.strides[1]), out=out, weights=weights.value.numpy())
    summed = int(np.prod(out[:3])) * conv.weights[..., 0].size
    return conv if summed >= _FEWEST_SUMMED else None


def _shifted(conv: _Conv, pixels: int, lanes: int) -> NDArray[Any]:
    """Return the weights of the wider convolution: channels of a pixel side by side, then those of the next; zeros to fill lanes."""
    rows, width, inputs, outputs = conv.weights.shape
    filled = -(-pixels * outputs // lanes) * lanes
    made = np.zeros((rows, width + (pixels - 1) * conv.stride, inputs, filled), np.float32)
    for pixel in range(pixels):
        reach = slice(pixel * conv.stride, pixel * conv.stride + width)
        made[:, reach, :, pixel * outputs : (pixel + 1) * outputs] = conv.weights
    return made
