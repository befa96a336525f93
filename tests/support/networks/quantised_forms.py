"""Quantised products that other steps separate from their integers, and those of groups and of one and three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from quantised_networks import Quantised, dynamic

SHAPE = [1, 16, 10, 10]
Step = Callable[[Quantised, str], Any]


def behind(
    step: Step, *, shape: Sequence[int] = SHAPE, depth: int = 16, dtype: Any = np.uint8, **how: Any
) -> onnx.ModelProto:
    """A convolution of what a step makes of a rounded input."""
    graph = Quantised()
    x = step(graph, graph.rounded(graph.input("x", shape), 0.011, dtype))
    weights = graph.weights([24, depth // how.get("group", 1), *[3] * (len(shape) - 2)], 0)
    graph.output(graph.node("Conv", x, weights, kernel_shape=[3] * (len(shape) - 2), **how))
    return graph.model()


def pad(value: float | None = None, mode: str = "constant") -> Step:
    def step(graph: Quantised, x: str) -> Any:
        number = [] if value is None else [graph.number(value)]
        return graph.node("Pad", x, graph.ints(0, 0, 1, 1, 0, 0, 2, 1), *number, mode=mode)

    return step


def concatenated(graph: Quantised, x: str) -> Any:
    return graph.node("Concat", x, graph.node("MaxPool", x, kernel_shape=[1, 1]), axis=1)


def of_two_scales(graph: Quantised, x: str) -> Any:
    return graph.node("Concat", x, graph.rounded(graph.node("Sigmoid", x), 0.004, np.int8), axis=1)


def with_two_channels_more(graph: Quantised, x: str) -> Any:
    """Of another scale: all channels together are no whole instructions, those of the first scale are."""
    first = graph.node("Slice", x, graph.ints(0), graph.ints(2), graph.ints(1))
    return graph.node("Concat", x, graph.rounded(graph.node("Sigmoid", first), 0.004, np.int8), axis=1)


def half(graph: Quantised, x: str) -> Any:
    return graph.node("Split", x, outputs=2, axis=1)[1]


def pooled(graph: Quantised, x: str) -> Any:
    return graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def larger(graph: Quantised, x: str) -> Any:
    sizes = graph.constant(np.array([1, 1, 2, 2], np.float32))
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.node("Resize", x, "", sizes, mode="nearest", **nearest)


def bounded(least: float, most: float) -> Step:
    return lambda graph, x: graph.node("Clip", x, graph.number(least), graph.number(most))


def chosen(graph: Quantised, x: str) -> Any:
    return graph.node("Gather", x, graph.ints(*range(0, 16, 2)), axis=1)


def repeated(graph: Quantised, x: str) -> Any:
    return graph.node("Tile", x, graph.ints(1, 1, 2, 3))


def grouped(
    groups: int,
    channels: int,
    results: int,
    size: Sequence[int] = (10, 10),
    dtype: Any = np.uint8,
    **how: Any,
) -> onnx.ModelProto:
    """A convolution of several groups, with a kernel of three along each axis."""
    graph = Quantised()
    x = graph.rounded(graph.input("x", [1, channels, *size]), 0.011, dtype)
    kernel = [3] * len(size)
    weights = graph.weights([results, channels // groups, *kernel], 0)
    y = graph.node("Conv", x, weights, kernel_shape=kernel, pads=[1] * 2 * len(size), group=groups, **how)
    graph.output(graph.rounded(graph.node("Relu", y), 0.02, np.uint8))
    return graph.model()


def transposed(**how: Any) -> onnx.ModelProto:
    """A transposed convolution of 16 channels and 16 results; of strides of 2, it becomes one of four phases."""
    graph = Quantised()
    x = graph.rounded(graph.input("x", SHAPE), 0.011, np.uint8)
    weights = graph.weights([16, 16, 4, 4], 1)
    y = graph.node("ConvTranspose", x, weights, kernel_shape=[4, 4], pads=[1] * 4, **how)
    graph.output(graph.rounded(graph.node("Relu", y), 0.02, np.uint8))
    return graph.model()


def axes(shape: Sequence[int], dtype: Any = np.uint8, **how: Any) -> onnx.ModelProto:
    return behind(lambda _graph, x: x, shape=shape, depth=shape[1], dtype=dtype, **how)


def gemm(**how: Any) -> onnx.ModelProto:
    graph = Quantised()
    x = graph.rounded(graph.input("x", [5, 18]), 0.011, np.uint8)
    bias = graph.constant(graph.rng.standard_normal(24).astype(np.float32))
    graph.output(graph.node("Gemm", x, graph.weights([18, 24], 1), bias, **how))
    return graph.model()


def unsigned(groups: int, zero: int, results: int = 24) -> onnx.ModelProto:
    """Weights of unsigned bytes, whose zero point leaves them no room in int8."""
    graph = Quantised()
    x = graph.rounded(graph.input("x", SHAPE), 0.011, np.int8)
    values = graph.constant(graph.rng.integers(0, 256, (results, 16 // groups, 3, 3)).astype(np.uint8))
    weights = graph.node("DequantizeLinear", values, graph.number(0.001), graph.number(zero, np.uint8))
    graph.output(graph.node("Conv", x, weights, kernel_shape=[3, 3], pads=[1, 0, 1, 2], group=groups))
    return graph.model()


def unsigned_rows() -> onnx.ModelProto:
    graph = Quantised()
    x = graph.rounded(graph.input("x", [7, 40]), 0.011, np.uint8)
    values = graph.constant(graph.rng.integers(0, 256, (40, 33)).astype(np.uint8))
    weights = graph.node("DequantizeLinear", values, graph.number(0.001), graph.number(99, np.uint8))
    graph.output(graph.node("MatMul", x, weights))
    return graph.model()


FORMS: dict[str, onnx.ModelProto] = {
    "same": axes(SHAPE, auto_pad="SAME_UPPER"),
    "same, lower, s8": axes([1, 16, 9, 10], np.int8, auto_pad="SAME_LOWER", strides=[2, 2]),
    "pad": behind(pad()),
    "pad of a number": behind(pad(0.22)),
    "pad, s8, reflected": behind(pad(mode="reflect"), dtype=np.int8),
    "max pool": behind(pooled),
    "max pool, s8": behind(pooled, dtype=np.int8),
    "relu": behind(lambda graph, x: graph.node("Relu", x)),
    "concat": behind(concatenated, depth=32),
    "concat, two scales": behind(of_two_scales, depth=32),
    "concat, two scales, ragged": behind(with_two_channels_more, depth=18),
    "groups, two scales": behind(of_two_scales, depth=32, group=4),
    "half": behind(half, depth=8),
    "resize": behind(larger),
    "bounds": behind(bounded(0.0, 0.66)),
    "bounds, s8, one out of reach": behind(bounded(-0.11, 6.0), dtype=np.int8),
    "gather": behind(chosen, depth=8),
    "tile": behind(repeated),
    "alpha": gemm(alpha=0.5, beta=2.0),
    "u8 weights": unsigned(1, 97),
    "u8 weights, rows": unsigned_rows(),
    "1d": axes([2, 16, 20], pads=[1, 1]),
    "1d, odd, s8": axes([1, 5, 21], np.int8, strides=[2], dilations=[2]),
    "3d": axes([1, 8, 5, 6, 7], pads=[1] * 6),
    "groups of many": grouped(2, 16, 96),
    "groups, odd": grouped(3, 15, 120),
    "groups of four": grouped(4, 16, 16),
    "groups, u8 weights": unsigned(2, 130),
    "groups, dynamic, zero points": dynamic(
        SHAPE, [32, 8, 3, 3], np.uint8, 140, pads=[1] * 4, kernel_shape=[3, 3], group=2
    ),
    "transposed": transposed(strides=[2, 2]),
    "transposed, dilated": transposed(strides=[2, 1], dilations=[1, 3]),
    "depthwise, odd, s8": grouped(6, 6, 6, (9, 7), np.int8, strides=[2, 1]),
    "depthwise, seven": grouped(7, 7, 7),
    "depthwise, twelve": grouped(12, 12, 12),
    "groups, dynamic": dynamic([1, 32, 10, 10], [64, 16, 3, 3], pads=[1] * 4, kernel_shape=[3, 3], group=2),
    "dynamic, same": dynamic(SHAPE, [32, 16, 3, 3], auto_pad="SAME_UPPER", kernel_shape=[3, 3]),
}
"""Every instruction multiplies these."""

SMALL_GROUPS: dict[str, onnx.ModelProto] = {
    "groups of two": grouped(8, 16, 16, dtype=np.int8),
    "depthwise": grouped(32, 32, 32),
    "depthwise, strides": grouped(48, 48, 48, (9, 13), np.int8, strides=[2, 2]),
    "depthwise, two results": grouped(16, 16, 32),
    "depthwise, u8 weights": unsigned(16, 97, 16),
    "depthwise, 1d": grouped(12, 12, 12, (30,)),
}
"""Instructions of many lanes would leave most of them empty."""
