"""Activations and arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import axes_node, case, image, scalar


@case()
def activations(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    simple = [
        "Relu",
        "Sigmoid",
        "Tanh",
        "Softsign",
        "Softplus",
        "Elu",
        "Selu",
        "LeakyRelu",
        "HardSigmoid",
        "Identity",
        "Neg",
        "Abs",
        "Exp",
        "Floor",
        "Ceil",
    ]
    out = [g.node(operator, x) for operator in simple]
    out.append(g.node("Elu", x, alpha=0.3))
    out.append(g.node("Selu", x, alpha=1.2, gamma=0.7))
    out.append(g.node("LeakyRelu", x, alpha=0.3))
    out.append(g.node("LeakyRelu", x, alpha=2.0))
    out.append(g.node("HardSigmoid", x, alpha=0.3, beta=0.4))
    out.append(g.node("PRelu", x, g.weight(5)))
    return out


@case()
def activations_half(g: GraphBuilder, v: int) -> Any:
    x = g.node("Cast", image(g, 2, 5), to=TensorProto.FLOAT16)
    names = ("Elu", "Selu", "ThresholdedRelu") if v >= 10 else ("Elu", "Selu")
    return [(g.node(operator, x), TensorProto.FLOAT16) for operator in names]


@case(17)
def layer_norm_double(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [2, 3, 8], TensorProto.DOUBLE)
    weights = [g.constant(np.linspace(start, 1, 8)) for start in (0.5, -1)]
    return [
        (g.node("LayerNormalization", x, *weights), TensorProto.DOUBLE),
        (g.node("LayerNormalization", x, weights[0]), TensorProto.DOUBLE),
    ]


@case()
def log_sum_exp(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    over_axes = [axes_node(g, x, "ReduceLogSumExp", axes, 18, v) for axes in ([1], [-1, 0])]
    return [*over_axes, g.node("ReduceLogSumExp", x, keepdims=0)]


@case()
def prelu_channels(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    return [
        g.node("PRelu", x, g.weight(4, 1, 1)),
        g.node("PRelu", x, g.weight(1)),
        g.node("PRelu", x, g.weight(4, 6, 8)),
    ]


@case(9)
def activations_9(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    return [g.node(operator, x) for operator in ("Erf", "Sign", "Sinh", "Cosh", "Asinh", "Atan")] + [
        g.node("Shrink", x, lambd=0.3, bias=0.1),
        g.node("Acosh", g.node("Add", g.node("Abs", x), scalar(g, 1.5))),
    ]


@case(10)
def thresholded(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    return [g.node("ThresholdedRelu", x), g.node("ThresholdedRelu", x, alpha=0.2)]


@case(12)
def round_half(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    halves = g.constant(np.array([0.5, 1.5, -2.5, 2.5, -0.5], np.float32))
    return [
        g.node("Round", g.node("Add", g.node("Mul", x, scalar(g, 0)), halves)),
        g.node("Celu", x, alpha=0.7),
    ]


@case(14)
def hard_swish(g: GraphBuilder, v: int) -> Any:
    return g.node("HardSwish", g.node("Mul", image(g, 2, 5), scalar(g, 4)))


@case(18)
def mish(g: GraphBuilder, v: int) -> Any:
    return g.node("Mish", image(g, 2, 5))


@case(20)
def gelu(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    return [g.node("Gelu", x), g.node("Gelu", x, approximate="tanh")]


@case()
def clip(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    if v < 11:
        return [g.node("Clip", x, min=-0.5, max=0.7), g.node("Clip", x, max=0.2), g.node("Clip", x)]
    lo, hi = scalar(g, -0.5), scalar(g, 0.7)
    return [g.node("Clip", x, lo, hi), g.node("Clip", x, "", hi), g.node("Clip", x, lo), g.node("Clip", x)]


@case(11)
def clip_live_bound(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    return g.node("Clip", x, g.input("low", []), scalar(g, 0.7))


@case(changed=(13,))
def softmaxes(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 4)
    return [
        g.node(op, x, **a)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for a in ({}, {"axis": 1}, {"axis": 2}, {"axis": 0})
    ]


@case(11, changed=(13,))
def softmaxes_negative(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 4)
    return [g.node(op, x, axis=a) for op in ("Softmax", "LogSoftmax", "Hardmax") for a in (-1, -2)]


@case()
def dropout(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    if v < 12:
        return g.node("Relu", g.node("Dropout", x, ratio=0.3))
    return g.node("Relu", g.node("Dropout", x, scalar(g, 0.3), scalar(g, False, bool)))


@case()
def dropout_mask_unused(g: GraphBuilder, v: int) -> Any:
    y, _ = g.node("Dropout", image(g), outputs=2)
    return g.node("Relu", y)


@case()
def arithmetic(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3)
    w = g.weight(3)
    out = [g.node(op, x, w) for op in ("Add", "Sub", "Mul", "Div")]
    out.append(g.node("Pow", g.node("Abs", x), scalar(g, 1.5)))
    out.append(g.node("Pow", x, scalar(g, 2)))
    out.append(g.node("Pow", x, scalar(g, 3)))
    out += [g.node(op, x, g.node("Neg", x), x) for op in ("Sum", "Mean", "Max", "Min")]
    out += [g.node(op, g.node("Abs", x)) for op in ("Sqrt", "Reciprocal", "Log")]
    out += [g.node(op, x) for op in ("Sin", "Cos", "Tan", "Atan")]
    return out


@case()
def comparisons(g: GraphBuilder, v: int) -> Any:
    x, y = image(g, 2, 3), g.input("y", [2, 3])
    less, more = g.node("Less", x, y), g.node("Greater", x, g.constant(np.zeros(1, np.float32)))
    out = [
        less,
        g.node("Not", more),
        g.node("And", less, more),
        g.node("Or", less, more),
        g.node("Xor", less, more),
    ]
    if v >= 11:
        out.append(g.node("Equal", x, y))
    if v >= 12:
        out += [g.node("GreaterOrEqual", x, y), g.node("LessOrEqual", x, y)]
    return [(output, TensorProto.BOOL) for output in out]


@case(10)
def mods(g: GraphBuilder, v: int) -> Any:
    x = g.node("Mul", image(g, 2, 30), scalar(g, 10))
    i = g.node("Cast", x, to=TensorProto.INT32)
    three = g.constant(np.array(3, np.int32))
    minus = g.constant(np.array(-3, np.int32))
    return [
        g.node("Mod", x, scalar(g, 3), fmod=1),
        (g.node("Mod", i, three), TensorProto.INT32),
        (g.node("Mod", i, minus), TensorProto.INT32),
        (g.node("Mod", i, three, fmod=1), TensorProto.INT32),
        (g.node("Div", i, three), TensorProto.INT32),
    ]


@case()
def casts(g: GraphBuilder, v: int) -> Any:
    x = g.node("Mul", image(g, 2, 30), scalar(g, 10))
    i = g.node("Cast", x, to=TensorProto.INT32)
    return [
        (i, TensorProto.INT32),
        (g.node("Cast", i, to=TensorProto.BOOL), TensorProto.BOOL),
        (g.node("Cast", x, to=TensorProto.DOUBLE), TensorProto.DOUBLE),
        g.node("Cast", g.node("Cast", x, to=TensorProto.INT64), to=TensorProto.FLOAT),
        (g.node("Cast", x, to=TensorProto.BOOL), TensorProto.BOOL),
    ]


@case()
def matmuls(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 4)
    return [
        g.node("MatMul", x, g.weight(4, 5)),
        g.node("MatMul", x, g.weight(2, 4, 5)),
        g.node("MatMul", x, g.weight(4)),
        g.node("MatMul", g.weight(7, 1, 6, 3), x),
    ]


@case()
def gemms(g: GraphBuilder, v: int) -> Any:
    x = image(g, 3, 4)
    return [
        g.node("Gemm", x, g.weight(4, 5), g.weight(5)),
        g.node("Gemm", x, g.weight(5, 4), g.weight(5), transB=1),
        g.node("Gemm", x, g.weight(3, 5), g.weight(4, 1), transA=1, alpha=0.5, beta=2.0),
        g.node("Gemm", x, g.weight(4, 5), g.weight(1), alpha=0.5),
        g.node("Gemm", x, g.weight(4, 5), g.weight(3, 1), beta=0.0),
    ] + ([g.node("Gemm", x, g.weight(4, 5))] if v >= 11 else [])


@case(12)
def einsums(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 4)
    return [
        g.node("Einsum", x, g.weight(2, 4, 5), equation="bij,bjk->bik"),
        g.node("Einsum", x, equation="bij->bji"),
        g.node("Einsum", x, g.weight(2, 3, 4), equation="bid,bjd->bij"),
        g.node("Einsum", x, g.weight(4, 5), equation="...d,de->...e"),
        g.node("Einsum", x, equation="bij->b"),
    ]


@case(12)
def einsum_implicit(g: GraphBuilder, v: int) -> Any:
    x = image(g, 3, 4)
    return [
        g.node("Einsum", x, g.weight(4, 5), equation="ij,jk"),
        g.node("Einsum", x, g.weight(4, 5), equation="ij , jk -> ki"),
    ]


@case(16)
def grid_sample(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 5, 6)
    grid = g.constant(np.random.default_rng(0).uniform(-1.2, 1.2, (1, 4, 3, 2)).astype(np.float32))
    linear = "bilinear" if v < 20 else "linear"
    return [
        g.node("GridSample", x, grid, mode=linear, align_corners=a, padding_mode=p)
        for a, p in ((0, "zeros"), (1, "border"), (0, "reflection"))
    ] + [g.node("GridSample", x, grid, mode="nearest")]


@case(10, 21, changed=(16,))  # ONNX Runtime has no later one
def roi_align(g: GraphBuilder, v: int) -> Any:
    x = image(g, 1, 2, 8, 9)
    rois = g.constant(np.array([[0, 0, 4, 4], [1, 2, 7, 6]], np.float32))
    return [
        g.node(
            "RoiAlign",
            x,
            rois,
            g.ints(0, 0),
            output_height=3,
            output_width=2,
            sampling_ratio=2,
            spatial_scale=0.9,
        )
    ]


@case(10)
def nan_inf(g: GraphBuilder, v: int) -> Any:
    x = g.node("Log", image(g, 2, 5))
    return [(g.node("IsInf", x), TensorProto.BOOL), (g.node("IsNaN", x), TensorProto.BOOL)]
