"""Widen convolutions with few output channels: compute neighbouring pixels of a row as channels of one pixel.

Vectors run along output channels, and a single channel leaves seven of eight lanes idle. Eight neighbouring pixels fill them: a convolution
of eight times the stride, whose eight kernels are the original one, each shifted by one more pixel. It multiplies by zeros where a
kernel does not reach, and is faster where kernels are wider than one pixel. The last layer of a vocoder is such a convolution of a signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_calls, static_shape
from tunefarm_tuning.tvm.transform.convolutions.convolution import CHANNELS_LAST, convolution_name, convolve

_LANES = 8
"""Half a vector of AVX-512, two of NEON. The same for all CPUs, since a farm shares the tasks of a model among them."""
_MAX_COST_RATIO = 0.7
"""Maximum share of vector operations of the wider convolution, whose pixels must be put side by side again afterwards."""
_NARROW_LANES, _MAX_NARROW_COST_RATIO = 4, 1.2
"""The same for CPUs with vectors of so few lanes, where it gains less or nothing."""
_MIN_PRODUCTS = 128  # products per output: with fewer, reading the pixels again costs more than the gain
_MIN_TOTAL_PRODUCTS = 1 << 18  # with fewer, a kernel takes only some tens of microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _NarrowConvolution:
    """A convolution of images with channels last by constant weights.

    Attributes:
        stride: Along a row.
        out: The shape of its result: images, rows, pixels, channels.
        weights: ``[rows, pixels, inputs, outputs]``.
    """

    stride: int
    out: tuple[int, ...]
    weights: NDArray[Any]

    @property
    def width(self) -> int:
        """The width of a kernel in pixels."""
        return int(self.weights.shape[1])

    def vectors(self, pixels: int, lanes: int) -> float:
        """Return the vector operations per pixel, input and row of the kernel, if so many pixels are computed as channels."""
        channels = self.out[3] if pixels == 1 else _whole_vectors(pixels * self.out[3])
        return -(-channels // lanes) * (self.width + (pixels - 1) * self.stride) / pixels

    @property
    def best_pixels(self) -> int:
        """Number of pixels to compute as channels; 1 means no change."""
        divisors = [pixels for pixels in range(2, _LANES + 1) if self.out[2] % pixels == 0]
        best = min(divisors, key=lambda pixels: self.vectors(pixels, _LANES), default=1)
        gains = self.vectors(best, _LANES) <= _MAX_COST_RATIO * self.vectors(1, _LANES)
        harmless = self.vectors(best, _NARROW_LANES) <= _MAX_NARROW_COST_RATIO * self.vectors(
            1, _NARROW_LANES
        )
        return best if gains and harmless else 1


def widen_narrow_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a channels-last network with its convolutions of fewer than eight output channels made wider."""
    return rewrite_calls(mod, _widen)


def _widen(call: Any, builder: Any) -> Any:
    conv = _match(call)
    pixels = conv.best_pixels if conv is not None else 1
    if conv is None or pixels == 1:
        return call
    shape = static_shape(call) or ()
    shifted = _shifted_kernels(conv, pixels)
    weights = relax.const(shifted[0] if len(shape) == 3 else shifted, "float32")
    strides = [*(int(stride) for stride in call.attrs.strides[:-1]), pixels * conv.stride]
    result = builder.emit(convolve(call, call.args[0], weights, strides=strides))
    if shifted.shape[3] != pixels * conv.out[3]:
        result = builder.emit(relax.op.strided_slice(result, [len(shape) - 1], [0], [pixels * conv.out[3]]))
    return builder.normalize(relax.op.reshape(result, list(shape)))


def _match(call: Any) -> _NarrowConvolution | None:
    """Return a call as a convolution that may be made wider, a signal as an image of one row; None for any other call."""
    if convolution_name(call, CHANNELS_LAST) not in ("relax.nn.conv1d", "relax.nn.conv2d"):
        return None
    attributes, (data, weights) = call.attrs, call.args
    out = static_shape(call)
    if (
        not isinstance(weights, tvm.ir.GenericConst)
        or str(weights.value.dtype) != "float32"
        or out is None
        or static_shape(data) is None
        or int(attributes.groups) != 1
        or int(attributes.dilation[-1]) != 1
        or out[-1] >= _LANES
    ):
        return None
    array = weights.value.numpy()
    if len(out) == 3:
        out, array = (out[0], 1, *out[1:]), array[None]
    conv = _NarrowConvolution(stride=int(attributes.strides[-1]), out=out, weights=array)
    products = conv.weights[..., 0].size
    pays = products >= _MIN_PRODUCTS and int(np.prod(out[:3])) * products >= _MIN_TOTAL_PRODUCTS
    return conv if pays else None


def _shifted_kernels(conv: _NarrowConvolution, pixels: int) -> NDArray[Any]:
    """Return the weights of the wider convolution: the channels of a pixel, then those of the next; then zeros to fill the lanes."""
    rows, width, inputs, outputs = conv.weights.shape
    channels = _whole_vectors(pixels * outputs)
    shifted = np.zeros((rows, width + (pixels - 1) * conv.stride, inputs, channels), np.float32)
    for pixel in range(pixels):
        reach = slice(pixel * conv.stride, pixel * conv.stride + width)
        shifted[:, reach, :, pixel * outputs : (pixel + 1) * outputs] = conv.weights
    return shifted


def _whole_vectors(channels: int) -> int:
    """Return a number of channels rounded up to whole vectors."""
    return -(-channels // _LANES) * _LANES
