"""Shape operators, and the computations that exporters make with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx_models import GraphBuilder

from onnx_zoo.cases import axes_node, case, image, scalar


@case()
def squeezes(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 1, 5)
    a = axes_node(g, x, "Squeeze", [0, 2], 13, v)
    b = axes_node(g, a, "Unsqueeze", [0, 3], 13, v)
    return [a, b, g.node("Squeeze", x)]


@case(11)
def squeezes_negative(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 1, 5)
    return [axes_node(g, x, "Squeeze", [-2], 13, v), axes_node(g, x, "Unsqueeze", [-1, 1], 13, v)]


@case()
def slices(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    if v < 10:
        return [
            g.node("Slice", x, starts=[1, -5], ends=[3, 1000], axes=[1, 3]),
            g.node("Slice", x, starts=[0, 1, 2, 0], ends=[1, 3, -1, 5]),
        ]
    return [
        g.node("Slice", x, g.ints(1, -5), g.ints(3, 1000), g.ints(1, 3)),
        g.node("Slice", x, g.ints(1, 7), g.ints(4, -9), g.ints(1, -1), g.ints(2, -2)),
        g.node("Slice", x, g.ints(0, 1), g.ints(1, 3)),
        g.node("Slice", x, g.ints(-1), g.ints(-(2**63) + 1), g.ints(3), g.ints(-1)),
        g.node("Slice", x, g.ints(-100), g.ints(2**63 - 1), g.ints(2), g.ints(3)),
    ]


@case()
def splits(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    if v < 13:
        return [*g.node("Split", x, axis=3, split=[3, 5], outputs=2), *g.node("Split", x, axis=1, outputs=2)]
    equal = {"num_outputs": 2} if v >= 18 else {}
    return [
        *g.node("Split", x, g.ints(3, 5), axis=3, outputs=2),
        *g.node("Split", x, axis=1, outputs=2, **equal),
    ]


@case(11)
def splits_negative(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    if v < 13:
        return g.node("Split", x, axis=-1, split=[1, 3, 4], outputs=3)
    return g.node("Split", x, g.ints(1, 3, 4), axis=-1, outputs=3)


@case(18)
def splits_uneven(g: GraphBuilder, v: int) -> Any:
    return g.node("Split", image(g, 2, 7), axis=1, num_outputs=3, outputs=3)


@case()
def split_one(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    return (
        g.node("Relu", g.node("Split", x, axis=1, split=[4]))
        if v < 13
        else g.node("Relu", g.node("Split", x, g.ints(4), axis=1))
    )


@case(9)
def joined_with_nothing(g: GraphBuilder, v: int) -> Any:
    nothing = g.node("Mul", g.node("ConstantOfShape", g.ints(1, 0, 6, 8)), scalar(g, 2))
    x = image(g)
    return [g.node("Relu", g.node("Concat", nothing, x, axis=1)), g.node("Concat", x, nothing, x, axis=1)]


@case()
def pads(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 5)
    sizes = [0, 0, 1, 2, 0, 0, 3, 1]
    if v < 11:
        return [
            g.node("Pad", x, pads=sizes, mode=m, **({"value": 1.5} if m == "constant" else {}))
            for m in ("constant", "reflect", "edge")
        ] + [g.node("Pad", x, pads=sizes)]
    return [
        g.node("Pad", x, g.ints(*sizes), scalar(g, 1.5)),
        g.node("Pad", x, g.ints(*sizes)),
        g.node("Pad", x, g.ints(*sizes), mode="reflect"),
        g.node("Pad", x, g.ints(*sizes), mode="edge"),
    ]


@case(11)
def pads_negative(g: GraphBuilder, v: int) -> Any:
    return g.node("Pad", image(g, 1, 2, 4, 5), g.ints(0, 0, -1, 2, 0, 0, 1, -2))


@case(18)
def pads_axes(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 4, 5)
    return [
        g.node("Pad", x, g.ints(1, 2, 0, 1), "", g.ints(2, -1)),
        g.node("Pad", x, g.ints(1, 2, 0, 1), "", g.ints(3, 1), mode="edge"),
    ]


@case(19)
def pads_wrap(g: GraphBuilder, v: int) -> Any:
    return g.node("Pad", image(g, 1, 2, 4, 5), g.ints(0, 0, 1, 2, 0, 0, 0, 1), mode="wrap")


@case()
def reshapes(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    a = g.node("Reshape", x, g.ints(0, -1, 16))
    return [
        a,
        g.node("Transpose", a, perm=[2, 0, 1]),
        g.node("Transpose", a),
        g.node("Flatten", x, axis=2),
        g.node("Flatten", x, axis=0),
    ]


@case()
def reshape_of_shape(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    shape = g.node("Shape", x)
    batch = axes_node(g, g.node("Gather", shape, scalar(g, 0, np.int64), axis=0), "Unsqueeze", [0], 13, v)
    return g.node("Reshape", x, g.node("Concat", batch, g.ints(-1), axis=0))


@case()
def expands(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 1)
    out = [g.node("Tile", x, g.ints(2, 1, 3)), g.node("Concat", x, x, axis=2)]
    if v >= 8:
        out.append(g.node("Expand", x, g.ints(3, 1, 5)))
        out.append(g.node("Expand", x, g.ints(2, 1, 4, 3)))
    return out


@case(9)
def constants(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3)
    filled = g.node(
        "ConstantOfShape", g.ints(2, 3), value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])
    )
    out = [g.node("Add", x, filled), g.node("EyeLike", g.node("MatMul", x, g.weight(3, 2)), k=1)]
    out.append(
        g.node("Mul", x, g.node("Constant", value=helper.make_tensor("c", TensorProto.FLOAT, [], [3.0])))
    )
    if v >= 12:
        out.append(g.node("Mul", x, g.node("Constant", value_floats=[1.0, 2.0, 3.0])))
        out.append(g.node("Mul", x, g.node("Constant", value_float=2.0)))
    return out


@case()
def depth(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 8, 4, 6)
    out = [g.node("DepthToSpace", x, blocksize=2), g.node("SpaceToDepth", x, blocksize=2)]
    if v >= 11:
        out.append(g.node("DepthToSpace", x, blocksize=2, mode="CRD"))
    return out


@case()
def shape_arithmetic(g: GraphBuilder, v: int) -> Any:
    """torch.nn.Upsample of old exporters, and a view of half the columns."""
    x = image(g, 1, 4, 6, 8)
    shape = g.node("Shape", x)

    def dim(i):
        return g.node("Gather", shape, scalar(g, i, np.int64), axis=0)

    half = g.node(
        "Cast",
        g.node("Floor", g.node("Div", g.node("Cast", dim(3), to=TensorProto.FLOAT), scalar(g, 2))),
        to=TensorProto.INT64,
    )
    both = g.node("Mul", dim(2), scalar(g, 2, np.int64))
    wanted = g.node(
        "Concat",
        *[axes_node(g, extent, "Unsqueeze", [0], 13, v) for extent in (dim(0), dim(1), both, half)],
        axis=0,
    )
    out = [g.node("Reshape", x, wanted)]
    if v >= 11:
        sizes = g.node(
            "Concat", g.node("Slice", shape, g.ints(0), g.ints(2), g.ints(0)), g.ints(12, 16), axis=0
        )
        empty = g.constant(np.zeros(0, np.float32)) if v < 13 else ""
        out.append(
            g.node(
                "Resize",
                x,
                empty,
                empty,
                sizes,
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        )
    return out


@case(11)
def expand_as_torch_does(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 1)
    wanted = g.ints(3, -1, 5)
    ones = g.node(
        "ConstantOfShape", g.node("Shape", wanted), value=helper.make_tensor("v", TensorProto.INT64, [1], [1])
    )
    minus = g.node("Mul", ones, scalar(g, -1, np.int64))
    return g.node("Expand", x, g.node("Where", g.node("Equal", wanted, minus), ones, wanted))


@case(11)
def positions_and_mask(g: GraphBuilder, v: int) -> Any:
    """Position ids of a range, and a causal mask out of comparisons."""
    x = image(g, 1, 6, 4)
    length = g.node("Gather", g.node("Shape", x), scalar(g, 1, np.int64), axis=0)
    ids = g.node("Range", scalar(g, 0, np.int64), length, scalar(g, 1, np.int64))
    embedded = g.node("Add", x, g.node("Gather", g.weight(16, 4), ids))
    rows, columns = axes_node(g, ids, "Unsqueeze", [1], 13, v), axes_node(g, ids, "Unsqueeze", [0], 13, v)
    later = g.node("Greater", columns, rows)
    scores = g.node("MatMul", embedded, g.node("Transpose", embedded, perm=[0, 2, 1]))
    return g.node("Where", later, scalar(g, -100), scores)


@case(11)
def ones_and_non_zero(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    count = g.node("Gather", g.node("Shape", x), g.ints(1), axis=0)
    ones = g.node("ConstantOfShape", count, value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
    places = g.node("Transpose", g.node("NonZero", ones))
    return g.node("Add", x, g.node("Cast", axes_node(g, places, "Squeeze", [1], 13, v), to=TensorProto.FLOAT))


@case(11)
def unpooled_output_unused(g: GraphBuilder, v: int) -> Any:
    y, _ = g.node("MaxPool", image(g, 1, 3, 8, 8), kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    return g.node("Relu", y)


@case(14)
def shape_of_parts(g: GraphBuilder, v: int) -> Any:
    """What PyTorch's older exporter writes for the heads of an attention: the dimensions before the first are none."""
    x = image(g, 1, 4, 6, 8)
    shape = g.node("Shape", x)
    at = g.node("Reshape", g.node("Mod", scalar(g, -4, np.int64), scalar(g, 4, np.int64)), g.ints(-1))
    after = g.node("Reshape", g.node("Add", at, g.ints(1)), g.ints(-1))
    before = g.node("Slice", shape, g.ints(0), at)
    return g.node(
        "Reshape",
        x,
        g.node("Concat", before, g.ints(1, 1), g.node("Slice", shape, after, g.ints(9)), axis=0),
    )
