"""Convolutions with few output channels made wider: neighbouring pixels of a row are computed as channels.

Vectors run along output channels, and a single one leaves seven of eight lanes idle. Eight neighbouring pixels' are eight: a
convolution of eight times the stride, whose kernels are the one that was there, each shifted by one pixel more. It multiplies by
zeros where a kernel does not reach, and is faster where kernels are more than one pixel wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.transform.convolution import CHANNELS_LAST, convolution_name, convolve

_LANES = 8
"""Whatever the target: farms share a model's tasks among all CPUs. Half a vector of AVX-512, two of NEON."""
_WORTH = 0.7
"""Of the vector operations as it stands, what the wider one may have at most: its pixels are put side by side again afterwards."""
_FEWEST_LANES, _HARMLESS = 4, 1.2
"""On vectors of so few lanes, where less or nothing is won, it may have no more than that."""
_FEWEST_PRODUCTS = 128  # of an output: with fewer, reading the pixels again costs more than is won
_FEWEST_SUMMED = 1 << 18  # in all: below that a kernel takes some tens of microseconds, whatever it does


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
        channels = self.out[3] if pixels == 1 else _filled(pixels * self.out[3])
        return -(-channels // lanes) * (self.width + (pixels - 1) * self.stride) / pixels

    @property
    def best_pixels(self) -> int:
        """How many pixels to compute as channels: 1 where it is best as it is."""
        fitting = [one for one in range(2, _LANES + 1) if self.out[2] % one == 0]
        best = min(fitting, key=lambda one: self.vectors(one, _LANES), default=1)
        wins = self.vectors(best, _LANES) <= _WORTH * self.vectors(1, _LANES)
        harmless = self.vectors(best, _FEWEST_LANES) <= _HARMLESS * self.vectors(1, _FEWEST_LANES)
        return best if wins and harmless else 1


def widen_few_outputs(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a network, laid out with channels last, with its convolutions of fewer than eight output channels made wider."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        conv = _match(visited)
        pixels = conv.best_pixels if conv is not None else 1
        if conv is None or pixels == 1:
            return visited
        images, rows, width, channels = conv.out
        shifted = _shifted(conv, pixels)
        strides = [int(visited.attrs.strides[0]), pixels * conv.stride]
        made = self.builder_.emit(
            convolve(visited, visited.args[0], relax.const(shifted, "float32"), strides=strides)
        )
        if shifted.shape[3] != pixels * channels:
            made = self.builder_.emit(relax.op.strided_slice(made, [3], [0], [pixels * channels]))
        return self.builder_.normalize(relax.op.reshape(made, [images, rows, width, channels]))


def _match(call: Any) -> _Conv | None:
    """Return the convolution that a call is; None where it is none that may be made wider."""
    if convolution_name(call, CHANNELS_LAST) != "relax.nn.conv2d":
        return None
    attributes, (data, weights) = call.attrs, call.args
    out = static_shape(call)
    if (
        not isinstance(weights, tvm.ir.GenericConst)
        or str(weights.value.dtype) != "float32"
        or out is None
        or static_shape(data) is None
        or int(attributes.groups) != 1
        or int(attributes.dilation[1]) != 1
        or out[3] >= _LANES
    ):
        return None
    conv = _Conv(stride=int(attributes.strides[1]), out=out, weights=weights.value.numpy())
    products = conv.weights[..., 0].size
    pays = products >= _FEWEST_PRODUCTS and int(np.prod(out[:3])) * products >= _FEWEST_SUMMED
    return conv if pays else None


def _shifted(conv: _Conv, pixels: int) -> NDArray[Any]:
    """Return the weights of the wider convolution: channels of a pixel side by side, then those of the next; zeros to fill lanes."""
    rows, width, inputs, outputs = conv.weights.shape
    filled = _filled(pixels * outputs)
    made = np.zeros((rows, width + (pixels - 1) * conv.stride, inputs, filled), np.float32)
    for pixel in range(pixels):
        reach = slice(pixel * conv.stride, pixel * conv.stride + width)
        made[:, reach, :, pixel * outputs : (pixel + 1) * outputs] = conv.weights
    return made


def _filled(channels: int) -> int:
    """Return so many channels in whole vectors."""
    return -(-channels // _LANES) * _LANES
