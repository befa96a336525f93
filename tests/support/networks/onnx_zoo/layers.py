"""Convolutions, pools, normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_models import GraphBuilder

from onnx_zoo.cases import case, image


@case()
def conv(g: GraphBuilder, v: int) -> Any:
    y = g.conv(image(g), 4, 6)
    return g.node(
        "Conv", y, g.weight(6, 2, 3, 3), group=3, dilations=[2, 1], pads=[2, 0, 1, 1], strides=[1, 2]
    )


@case()
def conv_auto_pad(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 9, 7)
    return [
        g.node("Conv", x, g.weight(2, 3, 4, 3), auto_pad=pad, strides=[2, 2])
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ]


@case()
def conv_1d_3d(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 10)
    y = g.node("Conv", x, g.weight(4, 3, 3), g.weight(4), pads=[1, 0], dilations=[2], strides=[2])
    z = g.input("z", [1, 2, 4, 5, 6])
    return [y, g.node("Conv", z, g.weight(3, 2, 2, 3, 3), pads=[1, 0, 1, 0, 1, 1], strides=[1, 2, 1])]


@case()
def conv_transpose(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 5, 6)
    a = g.node(
        "ConvTranspose",
        x,
        g.weight(4, 3, 3, 3),
        g.weight(3),
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    )
    b = g.node("ConvTranspose", x, g.weight(4, 2, 2, 2), group=2, strides=[2, 2])
    c = g.node("ConvTranspose", x, g.weight(4, 3, 3, 3), strides=[2, 3], pads=[1, 0, 0, 1], dilations=[2, 1])
    return [a, b, c]


@case()
def conv_transpose_auto(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 4, 5, 6)
    a = g.node("ConvTranspose", x, g.weight(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    b = g.node("ConvTranspose", x, g.weight(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER")
    return [a, b]


@case()
def conv_transpose_output_shape(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "ConvTranspose", image(g, 1, 4, 5, 6), g.weight(4, 3, 3, 3), strides=[3, 2], output_shape=[10, 8]
    )


@case()
def conv_transpose_output_shape_upper(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "ConvTranspose",
        image(g, 1, 4, 5, 6),
        g.weight(4, 3, 3, 3),
        strides=[3, 2],
        output_shape=[14, 12],
        auto_pad="SAME_UPPER",
    )


@case()
def conv_transpose_1d(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "ConvTranspose", image(g, 1, 4, 5), g.weight(4, 3, 4), strides=[2], pads=[1, 1], output_padding=[1]
    )


@case()
def conv_transpose_3d(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "ConvTranspose",
        image(g, 1, 2, 3, 4, 5),
        g.weight(2, 3, 2, 3, 2),
        strides=[2, 1, 2],
        pads=[0, 1, 0, 0, 1, 1],
    )


@case()
def pools(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 9, 10)
    return [
        g.node("MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        g.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        g.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 1], count_include_pad=1),
        g.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
        g.node("MaxPool", x, kernel_shape=[3, 3], auto_pad="VALID"),
        g.node("GlobalAveragePool", x),
        g.node("GlobalMaxPool", x),
    ]


@case(10)
def pools_ceil(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 9, 12)
    return [
        g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, pads=[0, 0, 1, 1]),
        g.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        g.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
    ]


@case(10)
def pools_ceil_overhang(g: GraphBuilder, v: int) -> Any:
    # The last window would begin in the padding: it is left out.
    x = image(g, 1, 3, 6, 7)
    return [
        g.node("MaxPool", x, kernel_shape=[1, 2], strides=[3, 4], pads=[0, 0, 0, 1], ceil_mode=1),
        g.node("MaxPool", x, kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
    ]


@case(10)
def average_pool_ceil_counting(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 9, 12)
    return g.node(
        "AveragePool",
        x,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    )


@case(10)
def max_pool_dilated(g: GraphBuilder, v: int) -> Any:
    return g.node("MaxPool", image(g, 1, 3, 9, 10), kernel_shape=[3, 2], dilations=[2, 3])


@case(19)
def average_pool_dilated(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "AveragePool", image(g, 1, 3, 9, 10), kernel_shape=[3, 2], dilations=[2, 2], pads=[1, 0, 1, 1]
    )


@case(10)
def pools_1d_3d(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 3, 9)
    z = g.input("z", [1, 2, 5, 6, 7])
    return [
        g.node("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 1]),
        g.node("AveragePool", x, kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1),
        g.node("MaxPool", z, kernel_shape=[2, 2, 3], strides=[2, 2, 2]),
        g.node("AveragePool", z, kernel_shape=[2, 2, 3], strides=[2, 2, 2], pads=[0, 1, 1, 1, 0, 1]),
        g.node("GlobalAveragePool", z),
        g.node("GlobalAveragePool", x),
        g.node("GlobalMaxPool", z),
    ]


@case(until=21)  # ONNX Runtime has no later GlobalLpPool
def lp_pool(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    return [g.node("LpPool", x, kernel_shape=[2, 2], p=2, strides=[2, 2]), g.node("GlobalLpPool", x, p=2)]


@case()
def batch_norm(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    attributes = {"momentum": 0.8, "epsilon": 0.01}
    if v < 9:
        attributes["spatial"] = 1
    y = g.node(
        "BatchNormalization",
        x,
        *[g.constant(np.linspace(0.5, 1.5, 4).astype(np.float32)) for _ in range(4)],
        **attributes,
    )
    z = g.batch_norm(g.conv(y, 4, 4), 4)
    return [y, z]


@case()
def batch_norm_2d(g: GraphBuilder, v: int) -> Any:
    return g.batch_norm(image(g, 3, 5), 5)


@case()
def batch_norm_1d(g: GraphBuilder, v: int) -> Any:
    return g.batch_norm(image(g, 2, 5, 7), 5)


@case()
def instance_norm(g: GraphBuilder, v: int) -> Any:
    return g.node("InstanceNormalization", image(g), g.weight(4), g.weight(4), epsilon=0.01)


@case()
def instance_norm_1d(g: GraphBuilder, v: int) -> Any:
    return g.node("InstanceNormalization", image(g, 2, 4, 9), g.weight(4), g.weight(4))


@case()
def lrn(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 7, 4, 5)
    return [g.node("LRN", x, size=5, alpha=0.2, beta=0.6, bias=1.5), g.node("LRN", x, size=3)]


@case(9)
def mean_variance_norm(g: GraphBuilder, v: int) -> Any:
    return [
        g.node("MeanVarianceNormalization", image(g)),
        g.node("MeanVarianceNormalization", "x", axes=[1, 2]),
    ]


@case()
def lp_norm(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    return [g.node("LpNormalization", x), g.node("LpNormalization", x, axis=1, p=1)]


@case(17)
def layer_norm(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5, 8)
    return [
        g.node("LayerNormalization", x, g.weight(8), g.weight(8), epsilon=1e-3),
        g.node("LayerNormalization", x, g.weight(8)),
        g.node("LayerNormalization", x, g.weight(5, 8), g.weight(5, 8), axis=1),
    ]


@case(17)
def layer_norm_statistics(g: GraphBuilder, v: int) -> Any:
    return g.node("LayerNormalization", image(g, 2, 5, 8), g.weight(8), g.weight(8), outputs=3)


@case(21)
def group_norm(g: GraphBuilder, v: int) -> Any:
    return g.node("GroupNormalization", image(g), g.weight(4), g.weight(4), num_groups=2, epsilon=0.01)


@case(23)
def rms_norm(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5, 8)
    return [
        g.node("RMSNormalization", x, g.weight(8)),
        g.node("RMSNormalization", x, g.weight(5, 8), axis=1, epsilon=0.1),
        g.node("RMSNormalization", x, g.weight(2, 5, 8), axis=0),
    ]
