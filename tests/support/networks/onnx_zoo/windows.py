"""Windows of images and signals, and elements that are chosen or counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import case, image, scalar


@case(11)
def max_pool_indices(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 7, 8)
    padded = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
    outputs = []
    for attributes in (
        padded,
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [3, 3]},
        {"kernel_shape": [2, 2], "storage_order": 1},
    ):
        y, places = g.node("MaxPool", x, outputs=2, **attributes)
        outputs += [y, (places, TensorProto.INT64)]
    return outputs


@case(11)
def max_unpool(g: GraphBuilder, v: int) -> Any:
    y, places = g.node("MaxPool", image(g, 1, 2, 6, 8), kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    return g.node("MaxUnpool", g.node("Relu", y), places, kernel_shape=[2, 2], strides=[2, 2])


@case(18)
def columns_to_image(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [2, 12, 20])
    y = g.node("Col2Im", x, g.ints(9, 10), g.ints(2, 2), strides=[2, 2], pads=[0, 0, 0, 0])
    return [y, g.node("Col2Im", x, g.ints(6, 4), g.ints(2, 3), pads=[0, 1, 0, 1])]


@case(19, until=21)
def deformable_convolution(g: GraphBuilder, v: int) -> Any:
    offset, mask = g.input("offset", [1, 36, 4, 3]), g.input("mask", [1, 18, 4, 3])
    w, b = g.weight(6, 2, 3, 3), g.weight(6)
    return g.node(
        "DeformConv", image(g, 1, 4, 8, 6), w, offset, b, mask,
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], group=2, offset_group=2,
    )  # fmt: skip


@case(17)
def fourier_transforms(g: GraphBuilder, v: int) -> Any:
    x, pairs = g.input("x", [2, 12, 1]), g.input("pairs", [2, 12, 2])
    axis = {"axis": 1} if v < 20 else {}
    return [
        g.node("DFT", x, onesided=1, **axis),
        g.node("DFT", pairs, **axis),
        g.node("DFT", pairs, inverse=1, **axis),
        g.node("DFT", pairs, scalar(g, 8, np.int64), **axis),
        g.node("DFT", x, scalar(g, 16, np.int64), **axis),
    ]


@case(17)
def short_time_transforms(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [2, 64, 1])
    window = g.constant(np.hanning(16).astype(np.float32))
    step, length = scalar(g, 8, np.int64), scalar(g, 16, np.int64)
    computed = g.node("Abs", g.input("window", [16]))
    return [
        g.node("STFT", x, step, window, length),
        g.node("STFT", x, step, "", length, onesided=0),
        g.node("STFT", x, step, computed, length),
    ]


@case(10)
def reverse_sequence(g: GraphBuilder, v: int) -> Any:
    x, lengths = g.input("x", [5, 2, 3]), g.constant(np.array([5, 2], np.int64))
    of_input = g.node("ReverseSequence", g.input("z", [2, 4]), g.ints(3, 1), batch_axis=0, time_axis=1)
    return [g.node("ReverseSequence", x, lengths), of_input]


@case(11)
def determinant(g: GraphBuilder, v: int) -> Any:
    return g.node("Det", g.input("x", [2, 3, 4, 4]))


@case(18)
def mish(g: GraphBuilder, v: int) -> Any:
    x = g.node("Mul", image(g), scalar(g, 12))
    return [g.node("Mish", x), g.node("Softplus", x)]


@case(9)
def counted_ngrams(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [2, 12], TensorProto.INT64)
    sizes = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 3, "mode": "TFIDF"}
    pool = {"ngram_counts": [0, 3], "pool_int64s": [1, 2, 3, 1, 2, 3, 0], "ngram_indexes": [4, 0, 1, 3, 2]}
    return g.node("TfIdfVectorizer", x, weights=[0.5, 1.0, 2.0, 3.0, 4.0], **sizes, **pool)


@case()
def extrema_of_infinities(g: GraphBuilder, v: int) -> Any:
    low = g.constant(np.array([[-np.inf, -np.inf], [-np.inf, 0.0]], np.float32))
    x = g.node("Add", g.input("x", [2, 2]), low)
    high = g.node("Neg", x)
    axes = {} if v >= 18 else {"axes": [1]}
    more = [g.ints(1)] if v >= 18 else []
    return [g.node("ReduceMax", x, *more, **axes), g.node("ReduceMin", high, *more, **axes)]


@case(12)
def places_of_infinities(g: GraphBuilder, v: int) -> Any:
    most, inf, nan = np.finfo(np.float32).max, np.inf, np.nan
    rows = [
        [nan] * 4,
        [-inf] * 4,
        [inf] * 4,
        [-most] * 4,
        [-inf, nan, -most, -inf],
        [1, nan, 3, 2],
        [0, 0, 0, 0],
    ]
    x = g.node("Add", g.input("x", [7, 4]), g.constant(np.array(rows, np.float32)))
    numbers = g.node(
        "Slice", x, g.ints(1), g.ints(4), g.ints(0)
    )  # of NaN alone ONNX Runtime returns the first, asked for the last
    outputs = []
    for operator in ("ArgMax", "ArgMin"):
        outputs.append(g.node(operator, x, axis=1, keepdims=0))
        outputs.append(g.node(operator, numbers, axis=1, select_last_index=1))
    return [(y, TensorProto.INT64) for y in outputs]


@case(15)
def batch_norm_in_training(g: GraphBuilder, v: int) -> Any:
    vectors = [g.weight(4) for _ in range(3)]
    spread = g.constant(np.array([0.5, 1, 2, 3], np.float32))
    return g.node("BatchNormalization", image(g), *vectors, spread, training_mode=1, outputs=3)


@case(13)
def half_sums(g: GraphBuilder, v: int) -> Any:
    x = g.node("Cast", image(g, 1, 4, 8, 8), to=TensorProto.FLOAT16)
    w = g.constant(np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float16))
    m = g.constant(np.random.default_rng(2).standard_normal((8, 16)).astype(np.float16))
    outputs = [g.node("Conv", x, w, pads=[1, 1, 1, 1]), g.node("MatMul", x, m), g.node("Softmax", x)]
    return [(y, TensorProto.FLOAT16) for y in outputs]
