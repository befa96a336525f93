"""Quantised tensors: 16, 8 and 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tflite_writer import scattered

from tflite_zoo.cases import RELU6, SAME, VALID, Case, Net, case


def _scaled(net: Net, shape: Sequence[int], scale: float = 0.05, zero: int = 3, dtype: str = "int8") -> int:
    return net.input(shape, dtype, scale=scale, zero=zero)


def _quantized_conv(
    net: Net,
    x: int,
    inp: Sequence[int],
    out: Sequence[int],
    *,
    x_scale: float,
    scale: float,
    zero: int,
    dtype: str = "int8",
    depthwise: bool = False,
    per_channel: bool = True,
    **fields: Any,
) -> int:
    """Add a convolution of integers, 3×3, with a bias."""
    channels = out[3]
    shape = (1, 3, 3, channels) if depthwise else (channels, 3, 3, inp[3])
    signed = np.round(scattered(shape, 50 + channels) * 100)
    scales = [0.004 + 0.001 * i for i in range(channels)] if per_channel else [0.005]
    kept, middle = ("uint8", 120) if dtype == "uint8" else ("int8", 0)
    axis = 3 if depthwise else 0
    w = net.constant((signed + middle).astype(kept), scale=scales, zero=middle, axis=axis)
    bias = np.round(scattered((channels,), 9) * 500).astype("int64" if dtype == "int16" else "int32")
    b = net.constant(bias, scale=[x_scale * s for s in scales])
    kind, options = (
        ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    )
    fields = {
        "Padding": SAME,
        "StrideH": 1,
        "StrideW": 1,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
    } | fields
    if depthwise:
        fields["DepthMultiplier"] = 1
    return net.op(kind, [x, w, b], out, dtype, options, fields, scale=scale, zero=zero)


@case
def quantized_network() -> Case:
    """Integers in and out: convolutions, a residual, pools, a dense layer, softmax."""
    net = Net()
    inp = (1, 8, 8, 3)
    x = _scaled(net, inp)
    y = _quantized_conv(
        net,
        x,
        inp,
        (1, 4, 4, 4),
        x_scale=0.05,
        scale=0.04,
        zero=-128,
        StrideH=2,
        StrideW=2,
        FusedActivationFunction=RELU6,
    )
    z = _quantized_conv(net, y, (1, 4, 4, 4), (1, 4, 4, 4), x_scale=0.04, scale=0.06, zero=4, depthwise=True)
    y = net.op("ADD", [y, z], (1, 4, 4, 4), "int8", "AddOptions", scale=0.08, zero=-5)
    pool = {"Padding": VALID, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    y = net.op("MAX_POOL_2D", [y], (1, 2, 2, 4), "int8", "Pool2DOptions", pool, scale=0.08, zero=-5)
    y = net.op(
        "MEAN", [y, net.ints(1, 2)], (1, 4), "int8", "ReducerOptions", {"KeepDims": False}, scale=0.05, zero=1
    )
    w = net.constant(np.round(scattered((6, 4), 3) * 100).astype(np.int8), scale=0.01)
    b = net.constant(np.round(scattered((6,), 4) * 300).astype(np.int32), scale=0.05 * np.float32(0.01))
    y = net.op("FULLY_CONNECTED", [y, w, b], (1, 6), "int8", "FullyConnectedOptions", scale=0.03, zero=0)
    return net.case(
        net.op("SOFTMAX", [y], (1, 6), "int8", "SoftmaxOptions", {"Beta": 1.0}, scale=1 / 256, zero=-128)
    )


@case
def quantized_inside() -> Case:
    """Floats in and out, integers between."""
    net = Net()
    inp = (1, 6, 6, 3)
    x = net.op("QUANTIZE", [net.input(inp)], inp, "int8", "QuantizeOptions", scale=0.025, zero=-1)
    y = _quantized_conv(net, x, inp, (1, 6, 6, 4), x_scale=0.025, scale=0.05, zero=0)
    y = net.op("QUANTIZE", [y], (1, 6, 6, 4), "int8", "QuantizeOptions", scale=0.07, zero=10)
    return net.case(net.op("DEQUANTIZE", [y], (1, 6, 6, 4), options="DequantizeOptions"))


@case
def quantized_unsigned() -> Case:
    """As TFLite of 2018 quantised: one scale, and zero points anywhere."""
    net = Net()
    inp = (1, 6, 6, 3)
    x = _scaled(net, inp, 0.02, 128, "uint8")
    y = _quantized_conv(
        net, x, inp, (1, 6, 6, 4), x_scale=0.02, scale=0.05, zero=100, dtype="uint8", per_channel=False
    )
    return net.case(net.op("LOGISTIC", [y], (1, 6, 6, 4), "uint8", scale=1 / 256, zero=0), low=0, high=255)


@case
def quantized_to_16_bits() -> Case:
    net = Net()
    inp = (1, 5, 5, 3)
    x = _scaled(net, inp, 0.0001, 0, "int16")
    y = _quantized_conv(net, x, inp, (1, 5, 5, 4), x_scale=0.0001, scale=0.0002, zero=0, dtype="int16")
    return net.case(y, low=-32768, high=32767)


@case
def quantized_movement() -> Case:
    """Operators that only move numbers keep the integers, unless their scales differ."""
    net = Net()
    inp = (1, 4, 4, 4)
    x = _scaled(net, inp)
    same: dict[str, Any] = {"scale": 0.05, "zero": 3}
    pads = net.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    y = net.op("PAD", [x, pads], (1, 6, 6, 4), "int8", "PadOptions", **same)
    z = net.op(
        "RESIZE_NEAREST_NEIGHBOR",
        [x, net.ints(6, 6)],
        (1, 6, 6, 4),
        "int8",
        "ResizeNearestNeighborOptions",
        **same,
    )
    joined = net.op(
        "CONCATENATION", [y, z], (1, 6, 6, 8), "int8", "ConcatenationOptions", {"Axis": 3}, **same
    )
    flat = net.op("RESHAPE", [joined, net.ints(6, 48)], (6, 48), "int8", "ReshapeOptions", **same)
    turned = net.op("TRANSPOSE", [flat, net.ints(1, 0)], (48, 6), "int8", "TransposeOptions", **same)
    part = net.op("SLICE", [turned, net.ints(2, 1), net.ints(9, 4)], (9, 4), "int8", "SliceOptions", **same)
    return net.case(part, z)


@case
def quantized_concatenation_of_two_scales() -> Case:
    net = Net()
    a, b = _scaled(net, (2, 3), 0.05, 130, "uint8"), _scaled(net, (2, 3), 0.02, 90, "uint8")
    options, fields = "ConcatenationOptions", {"Axis": 1}
    joined = net.op("CONCATENATION", [a, b], (2, 6), "uint8", options, fields, scale=0.05, zero=130)
    return net.case(joined, low=0, high=255)


@case
def quantized_conv_of_padded() -> Case:
    net = Net()
    x = _scaled(net, (1, 6, 6, 3), zero=17)
    pads = net.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    y = net.op("PAD", [x, pads], (1, 8, 8, 3), "int8", "PadOptions", scale=0.05, zero=17)
    return net.case(
        _quantized_conv(net, y, (1, 8, 8, 3), (1, 6, 6, 4), x_scale=0.05, scale=0.05, zero=0, Padding=VALID)
    )


@case
def quantized_arithmetic() -> Case:
    net = Net()
    a, b = _scaled(net, (2, 4)), _scaled(net, (2, 4), 0.02, -9)
    y = net.op("MUL", [a, b], (2, 4), "int8", "MulOptions", scale=0.1, zero=2)
    y = net.op("SUB", [y, b], (2, 4), "int8", "SubOptions", scale=0.12, zero=0)
    z = net.op("TANH", [a], (2, 4), "int8", scale=1 / 128, zero=0)
    return net.case(y, z, net.op("RELU", [a], (2, 4), "int8", scale=0.03, zero=-128))


@case
def quantized_weights_of_4_bits() -> Case:
    net = Net()
    x = _scaled(net, (3, 4))
    numbers = np.array([[1, -8, 7, 3], [-1, 2, -3, 4]])
    packed = (numbers.reshape(-1, 2)[:, 0] & 15 | (numbers.reshape(-1, 2)[:, 1] & 15) << 4).astype(np.uint8)
    w = net.tensor((2, 4), "int4", data=packed, scale=0.1)
    b = net.constant(np.array([5, -20], np.int32), scale=0.05 * np.float32(0.1))
    return net.case(
        net.op("FULLY_CONNECTED", [x, w, b], (3, 2), "int8", "FullyConnectedOptions", scale=0.1, zero=1)
    )
