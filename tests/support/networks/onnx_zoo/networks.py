"""Attention, and ordinary networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_models import GraphBuilder

from onnx_zoo.cases import axes_node, case, image, scalar


@case(23)
def attention(g: GraphBuilder, v: int) -> Any:
    q, k, w = g.input("q", [2, 4, 5, 8]), g.input("k", [2, 4, 6, 8]), g.input("v", [2, 4, 6, 8])
    return [
        g.node("Attention", q, k, w),
        g.node("Attention", q, k, w, is_causal=1, scale=0.3),
        g.node("Attention", q, k, w, g.weight(5, 6), softcap=2.0),
    ]


@case(23)
def attention_3d(g: GraphBuilder, v: int) -> Any:
    q, k, w = g.input("q", [2, 5, 32]), g.input("k", [2, 5, 16]), g.input("v", [2, 5, 16])
    return g.node("Attention", q, k, w, q_num_heads=4, kv_num_heads=2)


@case(23)
def rotary(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 4, 5, 8)
    cos, sin = g.weight(2, 5, 4), g.weight(2, 5, 4)
    return [
        g.node("RotaryEmbedding", x, cos, sin),
        g.node("RotaryEmbedding", x, cos, sin, interleaved=1),
        g.node(
            "RotaryEmbedding",
            x,
            g.weight(9, 4),
            g.weight(9, 4),
            g.constant(np.array([[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]], np.int64)),
        ),
    ]


@case()
def cnn(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [1, 3, 16, 16])
    y = g.node("Relu", g.batch_norm(g.conv(x, 3, 8, stride=2, bias=False), 8))
    skip = y
    y = g.conv(y, 8, 16, kernel=1)
    y = g.node("Clip", y, min=0.0, max=6.0) if v < 11 else g.node("Clip", y, scalar(g, 0), scalar(g, 6))
    y = g.conv(y, 16, 16, group=16)
    y = g.conv(y, 16, 8, kernel=1)
    y = g.node("Add", y, skip)
    gate = g.node("Sigmoid", g.conv(g.node("GlobalAveragePool", y), 8, 8, kernel=1))
    y = g.node("Mul", y, gate)
    y = g.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    if v < 9:
        y = g.node("Upsample", y, scales=[1.0, 1.0, 2.0, 2.0])
    else:
        scales = g.constant(np.array([1, 1, 2, 2], np.float32))
        y = (
            g.node("Upsample", y, scales)
            if v < 10
            else g.node(
                "Resize",
                y,
                *([scales] if v == 10 else [g.constant(np.zeros(0, np.float32)) if v < 13 else "", scales]),
                **(
                    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                    if v > 10
                    else {}
                ),
            )
        )
    y = g.node("Concat", y, skip, axis=1)
    y = axes_node(g, y, "ReduceMean", [2, 3], 18, v, keepdims=0)
    y = g.node("Dropout", y, ratio=0.2) if v < 12 else g.node("Dropout", y)
    return g.node("Softmax", g.node("Gemm", y, g.weight(10, 16), g.weight(10), transB=1), axis=1)


@case()
def transformer(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [1, 8, 16])
    y = g.linear(_layer_norm(g, x, v), 16, 48)
    y = g.node("Transpose", g.node("Reshape", y, g.ints(1, 8, 3, 4, 4)), perm=[2, 0, 3, 1, 4])
    if v < 10:
        parts = [g.node("Slice", y, starts=[i], ends=[i + 1], axes=[0]) for i in range(3)]
    else:
        parts = [g.node("Slice", y, g.ints(i), g.ints(i + 1), g.ints(0)) for i in range(3)]
    q, k, w = (axes_node(g, part, "Squeeze", [0], 13, v) for part in parts)
    scores = g.node("Div", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2])), scalar(g, 2))
    if v >= 9:
        mask = g.constant(np.tril(np.ones((8, 8), bool)))
        scores = g.node("Where", mask, scores, scalar(g, -1e9))
    y = g.node("MatMul", g.node("Softmax", scores, axis=3), w)
    y = g.node("Reshape", g.node("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, -1))
    x = g.node("Add", x, g.linear(y, 16, 16))
    y = g.linear(_layer_norm(g, x, v), 16, 32)
    if v >= 20:
        y = g.node("Gelu", y)
    elif v >= 9:
        half = g.node("Mul", y, scalar(g, 0.5))
        y = g.node(
            "Mul", half, g.node("Add", g.node("Erf", g.node("Div", y, scalar(g, 1.41421356))), scalar(g, 1))
        )
    else:
        y = g.node("Mul", y, g.node("Sigmoid", y))
    return g.node("Add", x, g.linear(y, 32, 16))


def _layer_norm(g: GraphBuilder, x: str, v: int) -> str:
    scale, shift = g.weight(16), g.weight(16)
    if v >= 17:
        return g.node("LayerNormalization", x, scale, shift, axis=-1)
    axes = [2] if v < 11 else [-1]
    d = g.node("Sub", x, axes_node(g, x, "ReduceMean", axes, 18, v))
    var = axes_node(g, g.node("Pow", d, scalar(g, 2)), "ReduceMean", axes, 18, v)
    y = g.node("Div", d, g.node("Sqrt", g.node("Add", var, scalar(g, 1e-5))))
    return g.node("Add", g.node("Mul", y, scale), shift)
