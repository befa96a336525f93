"""Small TFLite files for every operator that is read, in each of its forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tflite_writer import TfliteWriter, scattered

SAME, VALID = 0, 1
RELU, RELU_N1_TO_1, RELU6 = 1, 2, 3


@dataclass(frozen=True)
class Case:
    """A file, and numbers to put in: of integers, these are drawn from `low` to `high`."""

    data: bytes
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    low: int = -128
    high: int = 127

    def feeds(self) -> list[NDArray[Any]]:
        return [_feed(shape, dtype, 100 + i, self) for i, (shape, dtype) in enumerate(self.inputs)]


def _feed(shape: tuple[int, ...], dtype: str, seed: int, case: Case) -> NDArray[Any]:
    drawn = scattered(shape, seed)
    if dtype == "bool":
        return np.asarray(drawn > 0)
    if dtype.startswith("float"):
        return np.asarray(drawn * 3, dtype)
    span = np.floor((drawn.astype(np.float64) + 1) / 2 * (case.high - case.low + 1))
    return np.asarray(span + case.low, dtype)


class Net(TfliteWriter):
    """A file under construction that remembers its inputs."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.fed: list[tuple[tuple[int, ...], str]] = []

    def input(self, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self.fed.append((tuple(shape), dtype))
        return super().input(shape, dtype, **more)

    def case(self, *outputs: int, **more: Any) -> Case:
        return Case(self.data(outputs), tuple(self.fed), **more)

    def conv(self, x: int, inp: Sequence[int], out: Sequence[int], k: int = 3, **fields: Any) -> int:
        return self.op(
            "CONV_2D",
            [x, self.weight(out[3], k, k, inp[3]), self.weight(out[3])],
            out,
            options="Conv2DOptions",
            fields={"Padding": SAME, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
            | fields,
        )


ZOO: dict[str, Callable[[], Case]] = {}
Made = Callable[[], Case]


def case(function: Made) -> Made:
    ZOO[function.__name__] = function
    return function


def _unary(kind: str, *, positive: bool = False, options: str = "", **fields: Any) -> None:
    def make() -> Case:
        net = Net()
        x = net.input((2, 3, 4))
        if positive:
            x = net.op("ABS", [x], (2, 3, 4))
        return net.case(net.op(kind, [x], (2, 3, 4), options=options, fields=fields))

    ZOO[kind.lower() + "".join(f"_{k}_{v}".lower() for k, v in fields.items())] = make


ALONE = ("ABS", "NEG", "EXP", "SIN", "COS", "SQUARE", "FLOOR", "CEIL", "ROUND", "SIGN", "RELU", "RELU6")
for _kind in (*ALONE, "RELU_N1_TO_1", "RELU_0_TO_1", "TANH", "LOGISTIC", "HARD_SWISH", "ELU", "ZEROS_LIKE"):
    _unary(_kind)
for _kind in ("LOG", "SQRT", "RSQRT"):
    _unary(_kind, positive=True)
_unary("LEAKY_RELU", options="LeakyReluOptions", Alpha=0.3)
_unary("GELU", options="GeluOptions", Approximate=False)
_unary("GELU", options="GeluOptions", Approximate=True)
_unary("SOFTMAX", options="SoftmaxOptions", Beta=1.0)
_unary("SOFTMAX", options="SoftmaxOptions", Beta=0.5)
_unary("LOG_SOFTMAX", options="LogSoftmaxOptions")
_unary("L2_NORMALIZATION", options="L2NormOptions")


def _binary(
    kind: str, options: str = "", out: str = "float32", dtype: str = "float32", **fields: Any
) -> None:
    def make() -> Case:
        net = Net()
        a, b = net.input((2, 3, 4), dtype), net.input((3, 1), dtype)
        if kind == "POW":
            a = net.op("ABS", [a], (2, 3, 4))
        return net.case(net.op(kind, [a, b], (2, 3, 4), out, options, fields), low=1, high=9)

    name = "_".join([kind.lower(), dtype, *(f"{k}_{v}".lower() for k, v in fields.items())])
    ZOO[name] = make


for _kind, _options in (
    ("ADD", "AddOptions"),
    ("SUB", "SubOptions"),
    ("MUL", "MulOptions"),
    ("DIV", "DivOptions"),
):
    _binary(_kind, _options)
    _binary(_kind, _options, FusedActivationFunction=RELU)
    _binary(_kind, _options, "int32", "int32")
_binary("ADD", "AddOptions", FusedActivationFunction=RELU_N1_TO_1)
for _kind in ("POW", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE"):
    _binary(_kind)
for _kind in ("FLOOR_DIV", "FLOOR_MOD", "MAXIMUM"):
    _binary(_kind, out="int32", dtype="int32")
for _kind in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    _binary(_kind, out="bool")
    _binary(_kind, out="bool", dtype="int32")
for _kind in ("LOGICAL_AND", "LOGICAL_OR"):
    _binary(_kind, out="bool", dtype="bool")


@case
def logical_not() -> Case:
    net = Net()
    return net.case(net.op("LOGICAL_NOT", [net.input((3, 4), "bool")], (3, 4), "bool"))


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


@case
def reshape() -> Case:
    net = Net()
    x = net.input((2, 3, 4))
    return net.case(net.op("RESHAPE", [x, net.ints(4, -1)], (4, 6), options="ReshapeOptions"))


@case
def reshape_by_option() -> Case:
    net = Net()
    x = net.input((2, 3, 4))
    return net.case(net.op("RESHAPE", [x], (6, 4), options="ReshapeOptions", fields={"NewShape": [6, 4]}))


@case
def reshape_of_a_pooled_image() -> Case:
    net = Net()
    inp = (2, 4, 4, 3)
    y = net.conv(net.input(inp), inp, (2, 4, 4, 5))
    fields = {"Padding": VALID, "StrideH": 4, "StrideW": 4, "FilterHeight": 4, "FilterWidth": 4}
    y = net.op("AVERAGE_POOL_2D", [y], (2, 1, 1, 5), options="Pool2DOptions", fields=fields)
    return net.case(net.op("RESHAPE", [y, net.ints(2, 5)], (2, 5), options="ReshapeOptions"))


@case
def reshape_by_shape() -> Case:
    """The shape comes from SHAPE, STRIDED_SLICE and PACK, as Keras writes it."""
    net = Net()
    x = net.input((2, 3, 4))
    shape = net.op("SHAPE", [x], (3,), "int32", "ShapeOptions", {"OutType": 2})
    bounds = [net.ints(0), net.ints(1), net.ints(1)]
    batch = net.op(
        "STRIDED_SLICE", [shape, *bounds], (), "int32", "StridedSliceOptions", {"ShrinkAxisMask": 1}
    )
    twelve = net.constant(np.array(12, np.int32))
    new_shape = net.op("PACK", [batch, twelve], (2,), "int32", "PackOptions", {"ValuesCount": 2})
    return net.case(net.op("RESHAPE", [x, new_shape], (2, 12), options="ReshapeOptions"))


@case
def squeeze_and_expand_dims() -> Case:
    net = Net()
    x = net.input((2, 1, 3, 1))
    y = net.op("SQUEEZE", [x], (2, 3), options="SqueezeOptions", fields={"SqueezeDims": [1, 3]})
    return net.case(net.op("EXPAND_DIMS", [y, net.ints(1)], (2, 1, 3), options="ExpandDimsOptions"))


@case
def transpose() -> Case:
    net = Net()
    x = net.input((2, 3, 4))
    return net.case(net.op("TRANSPOSE", [x, net.ints(2, 0, 1)], (4, 2, 3), options="TransposeOptions"))


@case
def transpose_around_convolutions() -> Case:
    """As converters from channels-first frameworks write it."""
    net = Net()
    x = net.input((1, 3, 6, 5))
    y = net.op("TRANSPOSE", [x, net.ints(0, 2, 3, 1)], (1, 6, 5, 3), options="TransposeOptions")
    y = net.conv(y, (1, 6, 5, 3), (1, 6, 5, 4))
    y = net.op("TRANSPOSE", [y, net.ints(0, 3, 1, 2)], (1, 4, 6, 5), options="TransposeOptions")
    return net.case(net.op("TRANSPOSE", [y, net.ints(0, 1, 3, 2)], (1, 4, 5, 6), options="TransposeOptions"))


@case
def concatenation() -> Case:
    net = Net()
    a, b = net.input((2, 3, 4)), net.input((2, 2, 4))
    fields = {"Axis": -2}
    return net.case(net.op("CONCATENATION", [a, b], (2, 5, 4), options="ConcatenationOptions", fields=fields))


@case
def concatenation_of_images() -> Case:
    net = Net()
    inp = (1, 4, 4, 3)
    x = net.input(inp)
    y = net.conv(x, inp, (1, 4, 4, 5))
    joined = net.op("CONCATENATION", [x, y], (1, 4, 4, 8), options="ConcatenationOptions", fields={"Axis": 3})
    return net.case(net.conv(joined, (1, 4, 4, 8), (1, 4, 4, 2), 1))


@case
def split() -> Case:
    net = Net()
    inp = (1, 4, 4, 3)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 6))
    parts = [net.tensor((1, 4, 4, 2)) for _ in range(3)]
    axis = net.constant(np.array(3, np.int32))
    net.op_of("SPLIT", [axis, y], parts, "SplitOptions", {"NumSplits": 3})
    return net.case(*parts)


@case
def split_v() -> Case:
    net = Net()
    parts = [net.tensor((2, n)) for n in (1, 3, 2)]
    axis = net.constant(np.array(-1, np.int32))
    net.op_of(
        "SPLIT_V", [net.input((2, 6)), net.ints(1, -1, 2), axis], parts, "SplitVOptions", {"NumSplits": 3}
    )
    return net.case(*parts)


@case
def pack_and_unpack() -> Case:
    net = Net()
    a, b = net.input((2, 3)), net.input((2, 3))
    packed = net.op("PACK", [a, b], (2, 2, 3), options="PackOptions", fields={"ValuesCount": 2, "Axis": 1})
    parts = [net.tensor((2, 2)) for _ in range(3)]
    net.op_of("UNPACK", [packed], parts, "UnpackOptions", {"Num": 3, "Axis": 2})
    return net.case(packed, *parts)


@case
def tile() -> Case:
    net = Net()
    return net.case(net.op("TILE", [net.input((2, 3)), net.ints(2, 3)], (4, 9), options="TileOptions"))


@case
def broadcast_to() -> Case:
    net = Net()
    return net.case(net.op("BROADCAST_TO", [net.input((3, 1)), net.ints(2, 3, 4)], (2, 3, 4)))


@case
def fill() -> Case:
    net = Net()
    value = net.input(())
    return net.case(net.op("FILL", [net.ints(2, 3), value], (2, 3), options="FillOptions"))


@case
def gather() -> Case:
    net = Net()
    x = net.input((2, 5, 3))
    indices = net.constant(np.array([[4, 0], [2, 2]], np.int32))
    return net.case(net.op("GATHER", [x, indices], (2, 2, 2, 3), options="GatherOptions", fields={"Axis": 1}))


@case
def gather_nd() -> Case:
    net = Net()
    indices = net.constant(np.array([[1, 0], [0, 2]], np.int32))
    return net.case(net.op("GATHER_ND", [net.input((2, 3, 4)), indices], (2, 4), options="GatherNdOptions"))


@case
def embedding_lookup() -> Case:
    net = Net()
    ids = net.input((4,), "int32")
    return net.case(net.op("EMBEDDING_LOOKUP", [ids, net.weight(10, 3)], (4, 3)), low=0, high=9)


@case
def one_hot() -> Case:
    net = Net()
    ends = [net.constant(np.array(v, np.float32)) for v in (2.0, -1.0)]
    depth = net.constant(np.array(4, np.int32))
    ids = net.input((3,), "int32")
    encoded = net.op("ONE_HOT", [ids, depth, *ends], (3, 4), options="OneHotOptions", fields={"Axis": -1})
    return net.case(encoded, low=0, high=3)


@case
def range_and_rank() -> Case:
    net = Net()
    x = net.input((2, 6), "int32")
    rank = net.op("RANK", [x], (), "int32", "RankOptions")
    ends = [net.constant(np.array(v, np.int32)) for v in (0, 1)]
    twelve = net.constant(np.array(12, np.int32))
    row = net.op("RANGE", [ends[0], twelve, rank], (6,), "int32", "RangeOptions")
    return net.case(net.op("ADD", [x, row], (2, 6), "int32", "AddOptions"))


@case
def space_to_depth() -> Case:
    net = Net()
    x = net.input((1, 4, 6, 3))
    return net.case(
        net.op("SPACE_TO_DEPTH", [x], (1, 2, 3, 12), options="SpaceToDepthOptions", fields={"BlockSize": 2})
    )


@case
def depth_to_space() -> Case:
    net = Net()
    x = net.input((1, 2, 3, 12))
    return net.case(
        net.op("DEPTH_TO_SPACE", [x], (1, 4, 6, 3), options="DepthToSpaceOptions", fields={"BlockSize": 2})
    )


@case
def slice_() -> Case:
    net = Net()
    x = net.input((3, 4, 5))
    return net.case(
        net.op("SLICE", [x, net.ints(1, 0, 2), net.ints(2, -1, 2)], (2, 4, 2), options="SliceOptions")
    )


@case
def slice_of_an_image() -> Case:
    net = Net()
    inp = (1, 5, 5, 3)
    y = net.conv(net.input(inp), inp, (1, 5, 5, 6))
    y = net.op("SLICE", [y, net.ints(0, 1, 0, 2), net.ints(1, 3, 4, 3)], (1, 3, 4, 3), options="SliceOptions")
    return net.case(net.conv(y, (1, 3, 4, 3), (1, 3, 4, 2)))


def _strided(name: str, bounds: Sequence[Sequence[int]], out: Sequence[int], **fields: Any) -> None:
    def make() -> Case:
        net = Net()
        x = net.input((4, 5, 6))
        inputs = [x, *(net.ints(*bound) for bound in bounds)]
        return net.case(net.op("STRIDED_SLICE", inputs, out, options="StridedSliceOptions", fields=fields))

    ZOO[f"strided_slice_{name}"] = make


_strided("steps", ([1, 0, 5], [4, 5, 0], [2, 1, -2]), (2, 5, 3))
_strided("masks", ([1, 2, 0], [2, 0, 3], [1, 1, 1]), (1, 3, 3), BeginMask=4, EndMask=2)
_strided("shrink", ([2, -1, 0], [3, 0, 6], [1, 1, 2]), (3,), ShrinkAxisMask=3)
_strided("ellipsis", ([0, 1], [0, 4], [1, 1]), (4, 5, 3), EllipsisMask=1)
_strided("new_axis", ([0, 0, 1], [0, 3, 3], [1, 1, 1]), (1, 3, 2, 6), NewAxisMask=1)
_strided("reversed", ([0], [0], [-1]), (4, 5, 6), BeginMask=1, EndMask=1)
_strided("short", ([1], [100], [1]), (3, 5, 6))


@case
def reverse_v2() -> Case:
    net = Net()
    return net.case(
        net.op("REVERSE_V2", [net.input((3, 4)), net.ints(1)], (3, 4), options="ReverseV2Options")
    )


PADS = np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)


@case
def pad() -> Case:
    net = Net()
    return net.case(
        net.op("PAD", [net.input((1, 3, 4, 2)), net.constant(PADS)], (1, 6, 5, 2), options="PadOptions")
    )


@case
def padv2() -> Case:
    net = Net()
    value = net.constant(np.array(-7.5, np.float32))
    inputs = [net.input((1, 3, 4, 2)), net.constant(PADS), value]
    return net.case(net.op("PADV2", inputs, (1, 6, 5, 2), options="PadV2Options"))


@case
def padv2_then_conv() -> Case:
    """A padding of another value than zero is no convolution's padding."""
    net = Net()
    value = net.constant(np.array(-7.5, np.float32))
    x = net.op(
        "PADV2", [net.input((1, 3, 4, 2)), net.constant(PADS), value], (1, 6, 5, 2), options="PadV2Options"
    )
    return net.case(net.conv(x, (1, 6, 5, 2), (1, 4, 3, 3), Padding=VALID))


def _mirror(mode: int) -> None:
    def make() -> Case:
        net = Net()
        inputs = [net.input((1, 3, 4, 2)), net.constant(PADS)]
        return net.case(
            net.op("MIRROR_PAD", inputs, (1, 6, 5, 2), options="MirrorPadOptions", fields={"Mode": mode})
        )

    ZOO[f"mirror_pad_{mode}"] = make


_mirror(0)
_mirror(1)


def _reduction(
    kind: str, axes: Sequence[int], out: Sequence[int], *, keep: bool = False, image: bool = False
) -> None:
    def make() -> Case:
        net = Net()
        inp = (2, 3, 4, 5)
        x = net.input(inp)
        if image:
            x = net.conv(x, inp, inp)
        fields = {"KeepDims": keep}
        return net.case(net.op(kind, [x, net.ints(*axes)], out, options="ReducerOptions", fields=fields))

    ZOO[f"{kind.lower()}_{'_'.join(map(str, axes))}{'_kept' * keep}{'_image' * image}"] = make


for _kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
    _reduction(_kind, (1, -1), (2, 4))
_reduction("MEAN", (1, 2), (2, 5), image=True)
_reduction("MEAN", (1, 2), (2, 1, 1, 5), keep=True, image=True)
_reduction("SUM", (3,), (2, 3, 4), image=True)
_reduction("SUM", (1,), (2, 4, 5), image=True)
_reduction("REDUCE_MAX", (3,), (2, 3, 4, 1), keep=True, image=True)


@case
def reduce_any_and_all() -> Case:
    net = Net()
    x = net.input((4, 3), "bool")
    return net.case(
        net.op("REDUCE_ANY", [x, net.ints(1)], (4,), "bool", "ReducerOptions", {"KeepDims": False}),
        net.op("REDUCE_ALL", [x, net.ints(0)], (3,), "bool", "ReducerOptions", {"KeepDims": False}),
    )


@case
def arg_max_and_min() -> Case:
    net = Net()
    inp = (1, 4, 4, 3)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 5))
    axis = net.constant(np.array(3, np.int32))
    return net.case(
        net.op("ARG_MAX", [y, axis], (1, 4, 4), "int64", "ArgMaxOptions", {"OutputType": 4}),
        net.op("ARG_MIN", [y, net.ints(1)], (1, 4, 5), "int32", "ArgMinOptions", {"OutputType": 2}),
    )


@case
def topk_v2() -> Case:
    net = Net()
    values, indices = net.tensor((3, 2)), net.tensor((3, 2), "int32")
    count = net.constant(np.array(2, np.int32))
    net.op_of("TOPK_V2", [net.input((3, 6)), count], [values, indices], "TopKV2Options")
    return net.case(values, indices)


@case
def cumsum() -> Case:
    net = Net()
    axis = net.constant(np.array(1, np.int32))
    fields = {"Exclusive": True, "Reverse": True}
    return net.case(
        net.op("CUMSUM", [net.input((2, 5)), axis], (2, 5), options="CumsumOptions", fields=fields)
    )


@case
def softmax_of_an_image() -> Case:
    net = Net()
    inp = (1, 3, 3, 2)
    y = net.conv(net.input(inp), inp, (1, 3, 3, 4))
    return net.case(net.op("SOFTMAX", [y], (1, 3, 3, 4), options="SoftmaxOptions", fields={"Beta": 1.0}))


@case
def local_response_normalization() -> Case:
    net = Net()
    fields = {"Radius": 2, "Bias": 1.0, "Alpha": 0.3, "Beta": 0.75}
    options = "LocalResponseNormalizationOptions"
    x = net.input((1, 2, 2, 8))
    return net.case(net.op("LOCAL_RESPONSE_NORMALIZATION", [x], (1, 2, 2, 8), options=options, fields=fields))


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
def select() -> Case:
    net = Net()
    inputs = [net.input((3,), "bool"), net.input((3, 4)), net.input((3, 4))]
    return net.case(net.op("SELECT", inputs, (3, 4), options="SelectOptions"))


@case
def select_v2() -> Case:
    net = Net()
    inputs = [net.input((3, 1), "bool"), net.input((3, 4)), net.input((4,))]
    return net.case(net.op("SELECT_V2", inputs, (3, 4), options="SelectV2Options"))


@case
def cast() -> Case:
    net = Net()
    y = net.op("CAST", [net.input((3, 4))], (3, 4), "int32", "CastOptions")
    return net.case(y, net.op("CAST", [y], (3, 4), "bool", "CastOptions"))


@case
def prelu() -> Case:
    net = Net()
    inp = (1, 4, 4, 2)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 3))
    return net.case(net.op("PRELU", [y, net.weight(1, 1, 3)], (1, 4, 4, 3)))


@case
def add_n() -> Case:
    net = Net()
    return net.case(net.op("ADD_N", [net.input((2, 3)) for _ in range(3)], (2, 3), options="AddNOptions"))


@case
def images_meet_vectors() -> Case:
    """Broadcasting counts from the last dimension, which is another one with the channels first."""
    net = Net()
    inp = (1, 4, 3, 2)
    y = net.conv(net.input(inp), inp, (1, 4, 3, 5))
    y = net.op("MUL", [y, net.weight(5)], (1, 4, 3, 5), options="MulOptions")
    y = net.op("ADD", [y, net.weight(3, 1)], (1, 4, 3, 5), options="AddOptions")
    y = net.op("SUB", [y, net.weight(1, 4, 1, 5)], (1, 4, 3, 5), options="SubOptions")
    y = net.op("MUL", [y, net.constant(np.array([3.0], np.float32))], (1, 4, 3, 5), options="MulOptions")
    return net.case(net.op("ADD", [y, net.input((3, 5))], (1, 4, 3, 5), options="AddOptions"))


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
