"""Quantised operators and other dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx_models import GraphBuilder

from onnx_zoo.cases import case, image, scalar


@case(10)
def quantise(g: GraphBuilder, v: int) -> Any:
    x = image(g)
    s, z, zs = scalar(g, 0.02), g.constant(np.array(120, np.uint8)), g.constant(np.array(-3, np.int8))
    q, qs = g.node("QuantizeLinear", x, s, z), g.node("QuantizeLinear", x, s, zs)
    return [
        (q, TensorProto.UINT8),
        (qs, TensorProto.INT8),
        g.node("DequantizeLinear", q, s, z),
        g.node("DequantizeLinear", qs, s, zs),
        g.node("DequantizeLinear", g.node("QuantizeLinear", x, s), s),
    ]


@case(13)
def qdq_conv_per_channel(g: GraphBuilder, v: int) -> Any:
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("DequantizeLinear", g.node("QuantizeLinear", image(g), s, z), s, z)
    rng = np.random.default_rng(1)
    w = g.constant(rng.integers(-127, 127, (5, 4, 3, 3), np.int8))
    ws, wz = g.constant(np.linspace(0.001, 0.01, 5).astype(np.float32)), g.constant(np.zeros(5, np.int8))
    wf = g.node("DequantizeLinear", w, ws, wz, axis=0)
    b = g.node(
        "DequantizeLinear",
        g.constant(rng.integers(-900, 900, 5, np.int32)),
        g.constant((np.linspace(0.001, 0.01, 5) * 0.02).astype(np.float32)),
        g.constant(np.zeros(5, np.int32)),
        axis=0,
    )
    y = g.node("Relu", g.node("Conv", x, wf, b, pads=[1, 1, 1, 1]))
    return g.node("DequantizeLinear", g.node("QuantizeLinear", y, s, z), s, z)


@case(10)
def qlinear_conv(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g), s, z)
    w = g.constant(rng.integers(-127, 127, (6, 2, 3, 3), np.int8))
    ws, wz = g.constant(np.linspace(0.001, 0.01, 6).astype(np.float32)), g.constant(np.zeros(6, np.int8))
    b = g.constant(rng.integers(-900, 900, 6, np.int32))
    y = g.node(
        "QLinearConv",
        x,
        s,
        z,
        w,
        ws,
        wz,
        scalar(g, 0.03),
        g.constant(np.array(110, np.uint8)),
        b,
        pads=[1, 1, 1, 1],
        strides=[2, 2],
        group=2,
    )
    return (y, TensorProto.UINT8)


@case(10)
def qlinear_conv_plain(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g), s, z)
    w = g.constant(rng.integers(0, 255, (6, 4, 1, 1), np.uint8))
    return (
        g.node(
            "QLinearConv",
            x,
            s,
            z,
            w,
            scalar(g, 0.01),
            g.constant(np.array(130, np.uint8)),
            scalar(g, 0.03),
            g.constant(np.array(110, np.uint8)),
        ),
        TensorProto.UINT8,
    )


@case(10)
def qlinear_matmul(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g, 2, 3, 8), s, z)
    w = g.constant(rng.integers(0, 255, (8, 5), np.uint8))
    y = g.node(
        "QLinearMatMul",
        x,
        s,
        z,
        w,
        scalar(g, 0.01),
        g.constant(np.array(130, np.uint8)),
        scalar(g, 0.03),
        g.constant(np.array(110, np.uint8)),
    )
    return (y, TensorProto.UINT8)


@case(10)
def qlinear_matmul_channels(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g, 3, 8), s, z)
    w = g.constant(rng.integers(-127, 127, (8, 5), np.int8))
    ws, wz = g.constant(np.linspace(0.001, 0.01, 5).astype(np.float32)), g.constant(np.zeros(5, np.int8))
    y = g.node("QLinearMatMul", x, s, z, w, ws, wz, scalar(g, 0.03), g.constant(np.array(110, np.uint8)))
    return (y, TensorProto.UINT8)


@case(10)
def matmul_integer(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g, 3, 8), s, z)
    w = g.constant(rng.integers(-127, 127, (8, 5), np.int8))
    columns = g.constant(np.array([1, 2, 3, -4, 5], np.int8))
    return [
        (g.node("MatMulInteger", x, w), TensorProto.INT32),
        (g.node("MatMulInteger", x, w, z), TensorProto.INT32),
        (g.node("MatMulInteger", x, w, z, g.constant(np.array(3, np.int8))), TensorProto.INT32),
        (g.node("MatMulInteger", x, w, z, columns), TensorProto.INT32),
    ]


@case(10)
def conv_integer(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    s, z = scalar(g, 0.02), g.constant(np.array(120, np.uint8))
    x = g.node("QuantizeLinear", image(g), s, z)
    w = g.constant(rng.integers(0, 255, (6, 4, 3, 3), np.uint8))
    return [
        (
            g.node("ConvInteger", x, w, z, g.constant(np.array(100, np.uint8)), pads=[1, 1, 1, 1]),
            TensorProto.INT32,
        ),
        (g.node("ConvInteger", x, w), TensorProto.INT32),
    ]


@case(11)
def dynamic_quantise(g: GraphBuilder, v: int) -> Any:
    q, s, z = g.node("DynamicQuantizeLinear", image(g, 3, 8), outputs=3)
    w = g.constant(np.random.default_rng(1).integers(-127, 127, (8, 5), np.int8))
    y = g.node("Cast", g.node("MatMulInteger", q, w, z), to=TensorProto.FLOAT)
    return g.node("Mul", y, g.node("Mul", s, scalar(g, 0.01)))


@case(21)
def qdq_blocked(g: GraphBuilder, v: int) -> Any:
    w = g.constant(np.random.default_rng(1).integers(-127, 127, (8, 6), np.int8))
    s = g.constant(np.linspace(0.01, 0.05, 24).reshape(4, 6).astype(np.float32))
    return g.node("MatMul", image(g, 3, 8), g.node("DequantizeLinear", w, s, axis=0, block_size=2))


@case(21)
def qdq_16(g: GraphBuilder, v: int) -> Any:
    s, z = scalar(g, 0.0002), g.constant(np.array(100, np.int16))
    q = g.node("QuantizeLinear", image(g), s, z)
    return [(q, TensorProto.INT16), g.node("DequantizeLinear", q, s, z)]


@case(8)
def doubles(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [2, 6], TensorProto.FLOAT)
    d = g.node("Cast", x, to=TensorProto.DOUBLE)
    y = g.node(
        "Add", g.node("MatMul", d, g.constant(np.ones((6, 3)) / 3)), g.constant(np.array([0.1, 0.2, 0.3]))
    )
    y = g.node("Max", y, g.constant(np.array([0.1])))
    return (g.node("Mul", y, scalar(g, 1e-3, np.float64)), TensorProto.DOUBLE)


@case(9)
def halves(g: GraphBuilder, v: int) -> Any:
    x = g.node("Cast", image(g, 1, 3, 8, 8), to=TensorProto.FLOAT16)
    w = g.constant((np.random.default_rng(0).standard_normal((4, 3, 3, 3)) / 5).astype(np.float16))
    y = g.node("Conv", x, w, g.constant(np.ones(4, np.float16)), pads=[1, 1, 1, 1])
    stats = [g.constant(np.linspace(0.5, 1.5, 4).astype(np.float16)) for _ in range(4)]
    y = g.node("Relu", g.node("BatchNormalization", y, *stats))
    y = g.node("Reshape", g.node("GlobalAveragePool", y), g.ints(1, 4))
    y = g.node(
        "Softmax",
        g.node("Gemm", y, g.constant(np.eye(4, 5).astype(np.float16)), g.constant(np.ones(5, np.float16))),
        axis=1,
    )
    return [(y, TensorProto.FLOAT16), g.node("Cast", y, to=TensorProto.FLOAT)]


@case(10)
def microsofts_quantised(g: GraphBuilder, v: int) -> Any:
    s, z, s2, z2 = scalar(g, 0.02), scalar(g, 120, np.uint8), scalar(g, 0.03), scalar(g, 110, np.uint8)
    x = g.node("QuantizeLinear", image(g), s, z)
    m = {"domain": "com.microsoft"}
    a = g.node("QLinearAdd", x, s, z, x, s, z, s2, z2, **m)
    b = g.node("QLinearMul", a, s2, z2, x, s, z, s2, z2, **m)
    c = g.node("QLinearSigmoid", b, s2, z2, scalar(g, 1 / 256), scalar(g, 0, np.uint8), **m)
    d = g.node("QLinearLeakyRelu", b, s2, z2, s2, z2, alpha=0.1, **m)
    e = g.node("QLinearConcat", s2, z2, a, s2, z2, d, s2, z2, axis=1, **m)
    f = g.node("QLinearGlobalAveragePool", e, s2, z2, s, z, **m)
    h = g.node("QLinearAveragePool", e, s2, z2, s, z, kernel_shape=[2, 2], **m)
    flat = g.node("Reshape", f, g.ints(1, 8))
    w = g.constant(np.random.default_rng(1).integers(-127, 127, (5, 8), np.int8))
    b = g.constant(np.array([100, -200, 300, 0, 50], np.int32))
    i = g.node(
        "QGemm", flat, s, z, w, scalar(g, 0.01), scalar(g, 0, np.int8), b, s2, z2, transB=1, alpha=1.0, **m
    )
    return [(output, TensorProto.UINT8) for output in (a, c, d, e, f, h, i)]


@case(21)
def weights_of_4_bits(g: GraphBuilder, v: int) -> Any:
    rng = np.random.default_rng(1)
    x = g.input("x", [3, 8])
    outputs = []
    for element, low, dtype in ((TensorProto.INT4, -8, np.int8), (TensorProto.UINT4, 0, np.uint8)):
        steps, zeros = rng.integers(low, low + 16, (8, 6)).astype(dtype), np.full((2, 6), low + 7, dtype)
        packed = [
            g.tensor(helper.make_tensor("", element, list(values.shape), values.flatten().tolist()))
            for values in (steps, zeros)
        ]
        scales = g.constant(rng.uniform(0.1, 1, (2, 6)).astype(np.float32))
        weights = g.node("DequantizeLinear", packed[0], scales, packed[1], axis=0, block_size=4)
        outputs.append(g.node("MatMul", x, weights))
    return outputs
