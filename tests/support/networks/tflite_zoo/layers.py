"""Convolutions, pools, dense layers, matrix products, resizing, and blocks of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tflite_writer import scattered

from tflite_zoo.cases import RELU, RELU6, RELU_N1_TO_1, SAME, VALID, ZOO, Case, Net, case


def _conv(
    name: str, size: int, stride: int, padding: int, k: int, out: int, dilation: int = 1, act: int = 0
) -> None:
    def make() -> Case:
        net = Net()
        inp = (1, size, size + 1, 3)
        wide = -(-(size + 1) // stride) if padding == SAME else -(-(size + 1 - (k - 1) * dilation) // stride)
        y = net.conv(
            net.input(inp),
            inp,
            (1, out, wide, 5),
            k,
            Padding=padding,
            StrideH=stride,
            StrideW=stride,
            DilationHFactor=dilation,
            DilationWFactor=dilation,
            FusedActivationFunction=act,
        )
        return net.case(y)

    ZOO[f"conv_2d_{name}"] = make


_conv("same", 6, 1, SAME, 3, 6)
_conv("same_even_kernel", 6, 1, SAME, 2, 6)
_conv("same_strided", 6, 2, SAME, 3, 3)
_conv("same_strided_odd", 7, 2, SAME, 3, 4, act=RELU6)
_conv("same_small_kernel", 7, 3, SAME, 1, 3)
_conv("valid", 6, 2, VALID, 3, 2, act=RELU)
_conv("dilated", 9, 1, SAME, 3, 9, 2, act=RELU_N1_TO_1)
_conv("dilated_valid", 9, 1, VALID, 3, 5, 2)


@case
def conv_2d_grouped() -> Case:
    net = Net()
    x = net.input((1, 5, 5, 4))
    y = net.op(
        "CONV_2D",
        [x, net.weight(6, 3, 3, 2), net.weight(6)],
        (1, 3, 3, 6),
        options="Conv2DOptions",
        fields={"Padding": VALID, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1},
    )
    return net.case(y)


@case
def conv_2d_of_padded() -> Case:
    net = Net()
    pads = net.constant(np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32))
    x = net.op("PAD", [net.input((1, 6, 6, 3)), pads], (1, 9, 7, 3), options="PadOptions")
    return net.case(net.conv(x, (1, 9, 7, 3), (1, 4, 3, 4), Padding=VALID, StrideH=2, StrideW=2))


@case
def conv_2d_of_float16() -> Case:
    net = Net()
    halves = [scattered(shape, i).astype(np.float16) for i, shape in enumerate(((4, 3, 3, 2), (4,)))]
    weights = [net.op("DEQUANTIZE", [net.constant(h)], h.shape, options="DequantizeOptions") for h in halves]
    fields = {"Padding": SAME, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    x = net.input((1, 5, 5, 2))
    return net.case(net.op("CONV_2D", [x, *weights], (1, 5, 5, 4), options="Conv2DOptions", fields=fields))


def _depthwise(name: str, multiplier: int, stride: int, dilation: int, padding: int, out: int) -> None:
    def make() -> Case:
        net = Net()
        channels = 3 * multiplier
        y = net.op(
            "DEPTHWISE_CONV_2D",
            [net.input((2, 8, 8, 3)), net.weight(1, 3, 3, channels), net.weight(channels)],
            (2, out, out, channels),
            options="DepthwiseConv2DOptions",
            fields={
                "Padding": padding,
                "StrideH": stride,
                "StrideW": stride,
                "DepthMultiplier": multiplier,
                "DilationHFactor": dilation,
                "DilationWFactor": dilation,
                "FusedActivationFunction": RELU6,
            },
        )
        return net.case(y)

    ZOO[f"depthwise_conv_2d_{name}"] = make


_depthwise("same", 1, 1, 1, SAME, 8)
_depthwise("multiplied", 2, 2, 1, SAME, 4)
_depthwise("dilated", 1, 1, 2, SAME, 8)
_depthwise("valid", 1, 2, 1, VALID, 3)


def _transposed(name: str, stride: int, padding: int, k: int, out: int, *, bias: bool = False) -> None:
    def make() -> Case:
        net = Net()
        inputs = [net.ints(1, out, out, 4), net.weight(4, k, k, 3), net.input((1, 5, 5, 3))]
        if bias:
            inputs.append(net.weight(4))
        fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
        return net.case(
            net.op("TRANSPOSE_CONV", inputs, (1, out, out, 4), options="TransposeConvOptions", fields=fields)
        )

    ZOO[f"transpose_conv_{name}"] = make


_transposed("same", 2, SAME, 3, 10, bias=True)
_transposed("same_even_kernel", 2, SAME, 4, 10)
_transposed("same_small_kernel", 3, SAME, 2, 15)
_transposed("valid", 2, VALID, 3, 11, bias=True)
_transposed("unstrided", 1, SAME, 3, 5)


def _pool(kind: str, name: str, padding: int, k: int, stride: int, out: int, act: int = 0) -> None:
    def make() -> Case:
        net = Net()
        fields = {
            "Padding": padding,
            "StrideH": stride,
            "StrideW": stride,
            "FilterHeight": k,
            "FilterWidth": k,
            "FusedActivationFunction": act,
        }
        x = net.input((1, 7, 7, 3))
        return net.case(net.op(kind, [x], (1, out, out, 3), options="Pool2DOptions", fields=fields))

    ZOO[f"{kind.lower()}_{name}"] = make


for _kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
    _pool(_kind, "same", SAME, 3, 2, 4)
    _pool(_kind, "valid", VALID, 2, 2, 3, RELU6)
_pool("AVERAGE_POOL_2D", "whole", VALID, 7, 1, 1)


def _dense(name: str, shape: Sequence[int], out: Sequence[int], *, bias: bool = True, **fields: Any) -> None:
    def make() -> Case:
        net = Net()
        inputs = [net.input(shape), net.weight(6, 4)]
        inputs.append(net.weight(6) if bias else -1)
        return net.case(
            net.op("FULLY_CONNECTED", inputs, out, options="FullyConnectedOptions", fields=fields)
        )

    ZOO[f"fully_connected_{name}"] = make


_dense("plain", (3, 4), (3, 6), FusedActivationFunction=RELU)
_dense("no_bias", (3, 4), (3, 6), bias=False)
_dense("flattened", (2, 3, 4), (6, 6))
_dense("flattened_rows", (1, 2, 2, 4), (4, 6))
_dense("kept", (2, 3, 4), (2, 3, 6), KeepNumDims=True)


@case
def fully_connected_of_an_image() -> Case:
    net = Net()
    inp = (1, 4, 4, 2)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 3))
    weights = net.weight(5, 48)
    return net.case(net.op("FULLY_CONNECTED", [y, weights, -1], (1, 5), options="FullyConnectedOptions"))


@case
def fully_connected_of_computed_weights() -> Case:
    net = Net()
    a, b = net.input((3, 4)), net.input((5, 4))
    return net.case(net.op("FULLY_CONNECTED", [a, b, -1], (3, 5), options="FullyConnectedOptions"))


def _matmul(name: str, a: Sequence[int], b: Sequence[int], out: Sequence[int], **fields: Any) -> None:
    def make() -> Case:
        net = Net()
        return net.case(
            net.op(
                "BATCH_MATMUL", [net.input(a), net.input(b)], out, options="BatchMatMulOptions", fields=fields
            )
        )

    ZOO[f"batch_matmul_{name}"] = make


_matmul("plain", (2, 3, 4), (2, 4, 5), (2, 3, 5))
_matmul("swapped_left", (2, 4, 3), (2, 4, 5), (2, 3, 5), AdjX=True)
_matmul("swapped_right", (2, 3, 4), (2, 5, 4), (2, 3, 5), AdjY=True)
_matmul("spread", (2, 1, 3, 4), (3, 4, 5), (2, 3, 3, 5))


def _resize(kind: str, size: Sequence[int], to: Sequence[int], **fields: bool) -> None:
    def make() -> Case:
        net = Net()
        options = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
        x = net.input((1, *size, 2))
        return net.case(net.op(kind, [x, net.ints(*to)], (1, *to, 2), options=options, fields=fields))

    chosen = "".join(f"_{name}".lower() for name in fields)
    ZOO[f"{kind.lower()}_{size[0]}_to_{to[0]}{chosen}"] = make


for _kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
    for _size, _to in (((3, 4), (6, 8)), ((6, 8), (3, 4)), ((5, 7), (8, 5)), ((4, 4), (12, 4))):
        _resize(_kind, _size, _to)
        _resize(_kind, _size, _to, AlignCorners=True)
        _resize(_kind, _size, _to, HalfPixelCenters=True)


@case
def a_block_with_a_gate() -> Case:
    """Squeeze and excite, as in mobile networks."""
    net = Net()
    inp = (1, 6, 6, 4)
    y = net.conv(net.input(inp), inp, (1, 6, 6, 8))
    y = net.op("HARD_SWISH", [y], (1, 6, 6, 8))
    gate = net.op(
        "MEAN", [y, net.ints(1, 2)], (1, 1, 1, 8), options="ReducerOptions", fields={"KeepDims": True}
    )
    gate = net.conv(gate, (1, 1, 1, 8), (1, 1, 1, 2), 1, FusedActivationFunction=RELU)
    gate = net.op("LOGISTIC", [net.conv(gate, (1, 1, 1, 2), (1, 1, 1, 8), 1)], (1, 1, 1, 8))
    y = net.op("MUL", [y, gate], (1, 6, 6, 8), options="MulOptions")
    return net.case(net.conv(y, (1, 6, 6, 8), (1, 3, 3, 4), 3, StrideH=2, StrideW=2))


@case
def several_outputs_of_one_tensor() -> Case:
    net = Net()
    x = net.input((2, 3))
    y = net.op("RELU", [x], (2, 3))
    return net.case(y, x, y)
