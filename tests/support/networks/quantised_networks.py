"""Small quantised networks: convolutions and products between roundings, in the forms of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx_models import GraphBuilder

ZERO = {np.uint8: 113, np.int8: -9}


class Quantised(GraphBuilder):
    """A graph builder with the parts of quantised networks."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(7)

    def number(self, value: float, dtype: Any = np.float32) -> str:
        return self.constant(np.array(value, dtype))

    def round(self, x: str, scale: float, dtype: Any) -> str:
        return str(self.node("QuantizeLinear", x, self.number(scale), self.number(ZERO[dtype], dtype)))

    def float(self, q: str, scale: float, dtype: Any) -> str:
        return str(self.node("DequantizeLinear", q, self.number(scale), self.number(ZERO[dtype], dtype)))

    def rounded(self, x: str, scale: float, dtype: Any) -> str:
        return self.float(self.round(x, scale, dtype), scale, dtype)

    def weights(self, shape: Sequence[int], axis: int | None) -> str:
        """Quantised weights; with a scale for each place of an axis, or one for all."""
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        size = shape[axis] if axis is not None else None
        scale = (self.rng.uniform(0.5, 2, size) / 127 / np.sqrt(np.prod(shape) / max(shape[:2]))).astype(
            np.float32
        )
        more = {} if axis is None else {"axis": axis}
        return str(
            self.node("DequantizeLinear", self.constant(values), self.constant(np.asarray(scale)), **more)
        )


def conv(
    shape: Sequence[int], out: int, kernel: int, dtype: Any, *, per_channel: bool = True, **how: Any
) -> onnx.ModelProto:
    """A convolution between roundings, whose sum with its input, of other channels, is left out."""
    graph = Quantised()
    x = graph.rounded(graph.input("x", shape), 0.011, dtype)
    w = graph.weights([out, shape[1], kernel, kernel], 0 if per_channel else None)
    bias = graph.constant(graph.rng.standard_normal(out).astype(np.float32))
    y = graph.node("Conv", x, w, bias, kernel_shape=[kernel, kernel], **how)
    graph.output(graph.rounded(graph.node("Relu", y), 0.02, np.uint8))
    return graph.model()


def product(shape: Sequence[int], out: int, dtype: Any) -> onnx.ModelProto:
    graph = Quantised()
    x = graph.rounded(graph.input("x", shape), 0.011, dtype)
    graph.output(graph.node("MatMul", x, graph.weights([shape[-1], out], 1)))
    return graph.model()


def residual() -> onnx.ModelProto:
    """Two convolutions around which their input goes as well, in the rounded form."""
    graph = Quantised()
    x = graph.rounded(graph.input("x", [1, 16, 9, 9]), 0.011, np.uint8)
    y = x
    for _ in range(2):
        y = graph.node("Conv", y, graph.weights([16, 16, 3, 3], 0), pads=[1] * 4, kernel_shape=[3, 3])
        y = graph.rounded(y, 0.02, np.uint8)
    graph.output(graph.node("Add", x, y))
    return graph.model()


def q_linear() -> onnx.ModelProto:
    """The operators that have integers on both sides."""
    graph = Quantised()
    rng = graph.rng
    x = graph.round(graph.input("x", [1, 8, 6, 6]), 0.011, np.uint8)
    zero = graph.number(ZERO[np.uint8], np.uint8)
    w = graph.constant(rng.integers(-127, 128, (12, 8, 3, 3)).astype(np.int8))
    scales = graph.constant(rng.uniform(1e-3, 2e-3, 12).astype(np.float32))
    none = graph.constant(np.zeros(12, np.int8))
    y_scale, y_zero = graph.number(0.05), graph.number(100, np.uint8)
    y = graph.node("QLinearConv", x, graph.number(0.011), zero, w, scales, none, y_scale, y_zero)
    rows = graph.node("Reshape", y, graph.ints(12, 16))
    b = graph.constant(rng.integers(-127, 128, (16, 21)).astype(np.int8))
    weight = [b, graph.number(2e-3), graph.number(0, np.int8)]
    product = graph.node(
        "QLinearMatMul", rows, y_scale, y_zero, *weight, graph.number(0.03), graph.number(90, np.uint8)
    )
    graph.output(graph.float(product, 0.03, np.uint8))
    return graph.model()


def dynamic(
    shape: Sequence[int],
    weights: Sequence[int],
    dtype: Any = np.int8,
    zero: int = 0,
    **how: Any,
) -> onnx.ModelProto:
    """An integer product of activations that are quantised when the model runs, as `quantize_dynamic` writes it."""
    graph = Quantised()
    q, scale, x_zero = graph.node("DynamicQuantizeLinear", graph.input("x", shape), outputs=3)
    limits = np.iinfo(dtype)
    values = graph.rng.integers(limits.min, limits.max + 1, weights).astype(dtype)
    parts = [q, graph.constant(values), x_zero, graph.number(zero, dtype)]
    y = graph.node("ConvInteger", *parts, **how) if how else graph.node("MatMulInteger", *parts)
    scaled = graph.node("Mul", scale, graph.number(0.002))
    y = graph.node("Mul", graph.node("Cast", y, to=onnx.TensorProto.FLOAT), scaled)
    graph.output(graph.node("Mul", y, graph.node("Sigmoid", y)))
    return graph.model()


def scaled_back(shape: Sequence[int], out: int) -> onnx.ModelProto:
    """A product of activations that are quantised, and scaled back to floats, when the model runs."""
    graph = Quantised()
    x = graph.node("Relu", graph.input("x", shape))
    x = graph.node("DequantizeLinear", *graph.node("DynamicQuantizeLinear", x, outputs=3))
    graph.output(graph.node("MatMul", x, graph.weights([shape[-1], out], 1)))
    return graph.model()


def lstm(hidden: int, *, batch: int = 1, dtype: Any = np.int8, zero: int = 0, **how: Any) -> onnx.ModelProto:
    """An LSTM whose states are rounded to 8 bits in each step, as ONNX Runtime's quantisation writes it."""
    rng, inputs, steps = np.random.default_rng(2), 20, 7
    directions = 2 if how.get("direction") == "bidirectional" else 1
    g = GraphBuilder(seed=4)
    low, high = (-120, 121) if dtype is np.int8 else (0, 256)
    weights = [
        g.constant(rng.integers(low, high, (directions, rows, 4 * hidden)).astype(dtype))
        for rows in (inputs, hidden)
    ]
    quantised = [
        g.constant(np.full(directions, 0.004, np.float32)),
        g.constant(np.full(directions, zero, dtype)),
    ]
    parts = [g.input("x", [steps, batch, inputs]), *weights, g.weight(directions, 8 * hidden), *[""] * 4]
    outputs = g.node(
        "DynamicQuantizeLSTM", *parts, *quantised, *quantised, domain="com.microsoft", outputs=3,
        hidden_size=hidden, **how,
    )  # fmt: skip
    for output in outputs:
        g.output(output)
    return g.model(17)


def image(per_channel: bool = False) -> onnx.ModelProto:
    """A convolution between `QuantizeLinear` and `DequantizeLinear`, whose weights are 8-bit integers."""
    g = GraphBuilder()
    scale, zero = g.constant(np.float32(0.03)), g.constant(np.uint8(128))
    x = g.node("QuantizeLinear", g.input("x", ["n", 4, "h", "w"]), scale, zero)
    x = g.node("DequantizeLinear", x, scale, zero)
    weight = g.constant(np.random.default_rng(0).integers(-90, 90, (8, 4, 3, 3)).astype(np.int8))
    scales = np.linspace(0.01, 0.02, 8, dtype=np.float32) if per_channel else np.float32(0.01)
    zeros = np.zeros(np.shape(scales), np.int8)
    weight = g.node("DequantizeLinear", weight, g.constant(scales), g.constant(zeros), axis=0)
    y = g.node("Conv", x, weight, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    y = g.node("DequantizeLinear", g.node("QuantizeLinear", y, scale, zero), scale, zero)
    g.output(g.node("Relu", y, out="y"), None)
    return g.model()


def rows() -> onnx.ModelProto:
    """Products and choices of 8-bit integers, as ONNX Runtime's quantiser writes them."""
    g, ours = GraphBuilder(), {"domain": "com.microsoft"}
    rounding = g.constant(np.float32(0.05)), g.constant(np.uint8(128))
    x = g.node("QuantizeLinear", g.input("x", ["n", 8]), *rounding)
    weights = g.constant(np.random.default_rng(1).integers(-127, 127, (8, 8), np.int8))
    product = g.node(
        "QGemm",
        x,
        *rounding,
        weights,
        g.constant(np.float32(0.01)),
        g.constant(np.int8(0)),
        "",
        *rounding,
        **ours,
    )
    chosen = g.node("Greater", "x", g.constant(np.float32(0)))
    y = g.node("QLinearWhere", chosen, product, *rounding, x, *rounding, *rounding, **ours)
    g.output(g.node("DequantizeLinear", y, *rounding, out="y"), ["n", 8])
    return g.model()


NETWORKS: dict[str, onnx.ModelProto] = {
    "3x3 u8": conv([1, 16, 10, 10], 32, 3, np.uint8, pads=[1] * 4),
    "3x3 s8": conv([1, 16, 10, 10], 32, 3, np.int8, pads=[1] * 4),
    "odd channels": conv([1, 5, 11, 13], 19, 3, np.int8, pads=[1, 0, 2, 1], strides=[2, 1]),
    "odd channels, u8": conv([2, 7, 9, 9], 35, 3, np.uint8, pads=[1] * 4, dilations=[2, 1]),
    "one scale": conv([1, 6, 8, 8], 16, 3, np.uint8, per_channel=False),
    "1x1": conv([1, 32, 7, 7], 48, 1, np.uint8),
    "1x1 s8, stride": conv([1, 32, 8, 8], 48, 1, np.int8, strides=[2, 2]),
    "first of a network": conv([1, 3, 20, 20], 16, 7, np.uint8, pads=[3] * 4, strides=[2, 2]),
    "matrices": product([1, 13, 64], 80, np.uint8),
    "matrices, s8, odd": product([2, 3, 5, 27], 21, np.int8),
    "a row": product([1, 100], 70, np.uint8),
    "rows left over, 1x1": conv([1, 64, 19, 19], 192, 1, np.uint8),
    "rows left over, 3x3": conv([1, 64, 17, 17], 128, 3, np.uint8, pads=[1] * 4),
    "rows left over, 64x64": conv([1, 64, 64, 64], 256, 1, np.uint8),
    "rows left over, batch": conv([2, 64, 19, 19], 32, 1, np.uint8),
    "rows of one": product([64, 1, 64], 64, np.uint8),
    "residual": residual(),
    "QLinear": q_linear(),
    "dynamic": dynamic([1, 13, 64], [64, 80]),
    "dynamic, zero points, odd": dynamic([2, 7, 27], [27, 21], np.uint8, 121),
    "dynamic, scaled back": scaled_back([3, 9, 40], 24),
    "dynamic, large": scaled_back([96, 128], 24),
    "dynamic, a row": dynamic([1, 100], [100, 70], np.uint8, 131),
    "dynamic, 3x3": dynamic([1, 16, 10, 10], [32, 16, 3, 3], pads=[1] * 4, kernel_shape=[3, 3]),
    "dynamic, 3x3, zero points": dynamic(
        [2, 5, 11, 13], [19, 5, 3, 3], np.uint8, 140, pads=[1, 0, 2, 1], strides=[2, 1], kernel_shape=[3, 3]
    ),
    "dynamic, 1x1, zero points": dynamic(
        [1, 32, 8, 8], [48, 32, 1, 1], np.uint8, 126, strides=[2, 2], kernel_shape=[1, 1]
    ),
}
