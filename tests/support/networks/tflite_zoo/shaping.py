"""Operators that move elements: reshape, transpose, concatenate, slice, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tflite_zoo.cases import PADS, VALID, ZOO, Case, Net, case


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


def _joined_images(net: Net) -> int:
    inp = (1, 4, 4, 3)
    x = net.input(inp)
    y = net.conv(x, inp, (1, 4, 4, 5))
    return net.op("CONCATENATION", [x, y], (1, 4, 4, 8), options="ConcatenationOptions", fields={"Axis": 3})


@case
def concatenation_of_images() -> Case:
    net = Net()
    joined = _joined_images(net)
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
def slices_of_joined_tensors() -> Case:
    """Along the dimension in which tensors were joined, at their ends and within them; and along another one."""
    net = Net()
    a, b, c = net.input((2, 3, 4)), net.input((2, 2, 4)), net.input((2, 4, 4))

    def joined(*parts: int, rows: int) -> int:
        return net.op(
            "CONCATENATION", parts, (2, rows, 4), options="ConcatenationOptions", fields={"Axis": 1}
        )

    def cut(x: int, begin: Sequence[int], shape: Sequence[int]) -> int:
        return net.op("SLICE", [x, net.ints(*begin), net.ints(*shape)], tuple(shape), options="SliceOptions")

    table = joined(joined(a, b, rows=5), c, rows=9)
    whole, within = cut(table, (0, 3, 0), (2, 2, 4)), cut(table, (0, 1, 0), (2, 5, 4))
    aside = cut(table, (0, 0, 1), (2, 9, 2))
    stepped = net.op(
        "STRIDED_SLICE",
        [table, net.ints(0, 0, 0), net.ints(2, 9, 4), net.ints(1, 2, 1)],
        (2, 5, 4),
        options="StridedSliceOptions",
    )
    return net.case(joined(cut(within, (0, 1, 0), (2, 3, 4)), whole, rows=5), aside, stepped)


@case
def slices_of_joined_images() -> Case:
    net = Net()
    joined = _joined_images(net)
    part = net.op(
        "SLICE", [joined, net.ints(0, 0, 0, 1), net.ints(1, 4, 4, 5)], (1, 4, 4, 5), options="SliceOptions"
    )
    return net.case(net.conv(part, (1, 4, 4, 5), (1, 4, 4, 2), 1))


@case
def slice_of_an_image() -> Case:
    net = Net()
    inp = (1, 5, 5, 3)
    y = net.conv(net.input(inp), inp, (1, 5, 5, 6))
    y = net.op("SLICE", [y, net.ints(0, 1, 0, 2), net.ints(1, 3, 4, 3)], (1, 3, 4, 3), options="SliceOptions")
    return net.case(net.conv(y, (1, 3, 4, 3), (1, 3, 4, 2)))


@case
def slice_of_nothing() -> Case:
    """TensorFlow writes a list of steps so, to which each step of a recurrent layer adds its own."""
    net = Net()
    x = net.input((3, 4))
    y = net.op("ADD", [x, x], (3, 4), options="AddOptions")
    nothing = net.op("SLICE", [y, net.ints(0, 0), net.ints(0, 4)], (0, 4), options="SliceOptions")
    return net.case(
        net.op("CONCATENATION", [nothing, y], (3, 4), options="ConcatenationOptions", fields={"Axis": 0})
    )


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
