"""ONNX Runtime's own operators, as its optimiser, its quantisers and the exporters of language models write them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import case, image

BATCH, WORDS, WIDTH, HEADS, PAST = 2, 5, 64, 4, 3
SIZE = WIDTH // HEADS
OURS = {"domain": "com.microsoft"}


def words(g: GraphBuilder, count: int = WORDS, name: str = "words") -> str:
    return g.input(name, [BATCH, count, WIDTH])


def whole(g: GraphBuilder, x: str) -> Any:
    return g.node("Cast", x, to=TensorProto.INT32)


def mask(g: GraphBuilder, *shape: int) -> Any:
    """Add a mask of which half is set, as an input decides."""
    return whole(g, g.node("Greater", g.input("m", shape), g.constant(np.array(0, np.float32))))


def cache(g: GraphBuilder, name: str, heads: int = HEADS, length: int = PAST) -> str:
    return g.input(name, [BATCH, heads, length, SIZE])


def tables(g: GraphBuilder, positions: int = 12, half: int = SIZE // 2) -> list[str]:
    """Add cosines and sines by position."""
    angles = np.random.default_rng(2).uniform(0, 6, (positions, half)).astype(np.float32)
    return [g.constant(np.cos(angles)), g.constant(np.sin(angles))]


def projected(g: GraphBuilder, x: str, *widths: int) -> list[Any]:
    return [g.node("MatMul", x, g.weight(WIDTH, width)) for width in widths]


def scalar(g: GraphBuilder, value: float, dtype: Any = np.float32) -> str:
    return g.constant(np.array(value, dtype))


@case(17, 17)
def fused_attention(g: GraphBuilder, v: int) -> Any:
    x, weights, bias = words(g), g.weight(WIDTH, 3 * WIDTH), g.weight(3 * WIDTH)
    options: dict[str, Any] = {"num_heads": HEADS, **OURS}
    pairs = g.input("b", [1, HEADS, WORDS, WORDS])
    seen = mask(g, BATCH, WORDS)
    return [
        g.node("Attention", x, weights, bias, seen, **options),
        g.node("Attention", x, weights, bias, seen, "", pairs, unidirectional=1, scale=0.3, **options),
        g.node("Attention", x, weights, bias, g.constant(np.array([3, 5], np.int32)), **options),
        g.node("Attention", x, weights, bias, g.constant(np.array([3, 5, 1, 2], np.int32)), **options),
        g.node(
            "Attention",
            x,
            g.weight(WIDTH, 2 * WIDTH + 8),
            g.weight(2 * WIDTH + 8),
            qkv_hidden_sizes=[WIDTH, WIDTH, 8],
            mask_filter_value=-50.0,
            **options,
        ),
    ]


@case(17, 17)
def fused_attention_of_pairs_and_past_words(g: GraphBuilder, v: int) -> Any:
    x, past = words(g), g.input("past", [2, BATCH, HEADS, PAST, SIZE])
    weights = g.weight(WIDTH, 3 * WIDTH), g.weight(3 * WIDTH)
    options: dict[str, Any] = {"num_heads": HEADS, **OURS}
    pairs = mask(g, BATCH, WORDS, WORDS)
    later = g.node("Attention", x, *weights, "", past, unidirectional=1, outputs=2, **options)
    return [g.node("Attention", x, *weights, pairs, **options), *later]


@case(17, 17)
def multi_head_attention(g: GraphBuilder, v: int) -> Any:
    x, options = words(g), {"num_heads": HEADS, **OURS}
    q, k, value = projected(g, x, WIDTH, WIDTH, WIDTH)
    bias, past = g.weight(3 * WIDTH), [cache(g, "past_k"), cache(g, "past_v")]
    other = [cache(g, "other_k", length=7), cache(g, "other_v", length=7)]
    pairs = g.input("b", [BATCH, 1, WORDS, WORDS])
    ends = g.constant(np.array([2, 5], np.int32))
    return [
        g.node("MultiHeadAttention", q, k, value, **options),
        g.node("MultiHeadAttention", q, k, value, bias, mask(g, BATCH, WORDS), pairs, scale=0.4, **options),
        g.node("MultiHeadAttention", q, k, value, "", ends, unidirectional=1, **options),
        g.node("MultiHeadAttention", q, *other, bias, **options),
        *g.node("MultiHeadAttention", q, k, value, bias, "", "", *past, outputs=3, **options),
    ]


def grouped(
    g: GraphBuilder, sizes: tuple[int, int, int], total: int, last: str, *more: str, **options: Any
) -> Any:
    """Add a `GroupQueryAttention`, given the sizes of the batch, of the new words and of the cache."""
    batch, new, length = sizes
    q, k, value = projected(g, g.input(f"words{total}", [batch, new, WIDTH]), WIDTH, 2 * SIZE, 2 * SIZE)
    pasts = [g.input(f"past_{name}{total}", [batch, 2, length, SIZE]) for name in "kv"]
    options = {"num_heads": HEADS, "kv_num_heads": 2, "outputs": 3, **OURS, **options}
    return g.node(
        "GroupQueryAttention", q, k, value, *pasts, last, scalar(g, total, np.int32), *more, **options
    )


@case(17, 17)
def group_query_attention(g: GraphBuilder, v: int) -> Any:
    # the last word of a sample may be before that of the other, as an input decides
    last = g.node("Add", mask(g, BATCH, 1), g.constant(np.array([[2], [2]], np.int32)))
    last = g.node("Reshape", last, g.ints(BATCH))
    options: dict[str, Any] = {"local_window_size": 2, "softcap": 0.5, "scale": 0.4}
    return [
        *grouped(g, (BATCH, 1, PAST), PAST + 1, last, *tables(g), do_rotary=1),
        *grouped(g, (BATCH, 1, 8), 6, g.constant(np.array([5, 4], np.int32)), **options),
    ]


@case(17, 17)
def group_query_attention_of_several_words(g: GraphBuilder, v: int) -> Any:
    packed = g.node("MatMul", g.input("packed", [1, 3, WIDTH]), g.weight(WIDTH, WIDTH + 4 * SIZE))
    pasts = [g.input(f"past_{name}", [1, 2, PAST, SIZE]) for name in "kv"]
    ends, total = g.constant(np.array([5], np.int32)), scalar(g, 6, np.int32)
    last = g.constant(np.array([4], np.int32))
    return [
        *grouped(g, (1, 2, PAST), 5, last, *tables(g), do_rotary=1, rotary_interleaved=1),
        *g.node(
            "GroupQueryAttention", packed, "", "", *pasts, ends, total, *tables(g),
            num_heads=HEADS, kv_num_heads=2, do_rotary=1, outputs=3, **OURS,
        ),
    ]  # fmt: skip


@case(17, 17)
def rotary_embedding(g: GraphBuilder, v: int) -> Any:
    x, places = words(g), g.constant(np.array([[0, 1, 2, 3, 4], [4, 3, 7, 1, 0]]))
    heads = g.input("heads", [BATCH, HEADS, WORDS, SIZE + 2])
    return [
        g.node("RotaryEmbedding", x, places, *tables(g), **OURS),
        g.node("RotaryEmbedding", x, g.ints(3), *tables(g), interleaved=1, **OURS),
        g.node(
            "RotaryEmbedding", heads, places, *tables(g), rotary_embedding_dim=SIZE, num_heads=HEADS, **OURS
        ),
    ]


@case(17, 17)
def fused_normalisations(g: GraphBuilder, v: int) -> Any:
    x, scale, beta, bias = words(g), g.weight(WIDTH), g.weight(WIDTH), g.weight(WIDTH)
    skipped = g.input("skipped", [BATCH, WORDS, WIDTH])
    root = g.node(
        "SkipSimplifiedLayerNormalization", x, skipped, scale, bias, epsilon=1e-5, outputs=4, **OURS
    )
    both = g.node("SkipLayerNormalization", x, skipped, scale, beta, bias, outputs=4, **OURS)
    return [
        g.node("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-6),
        g.node("SkipLayerNormalization", x, skipped, scale, **OURS),
        *(result[position] for result in (root, both) for position in (0, 3)),
    ]


@case(17, 17)
def embedded_words(g: GraphBuilder, v: int) -> Any:
    kinds, marks = whole(g, words_of(g, "kinds", 2)), mask(g, BATCH, WORDS)
    ids = whole(g, words_of(g, "ids", 9))
    norm, tables_ = [g.weight(WIDTH), g.weight(WIDTH)], [g.weight(9, WIDTH), g.weight(8, WIDTH)]
    a = g.node(
        "EmbedLayerNormalization", ids, kinds, *tables_, g.weight(2, WIDTH), *norm, marks, outputs=2, **OURS
    )
    b = g.node("EmbedLayerNormalization", ids, "", *tables_, "", *norm, outputs=2, **OURS)
    rng, shapes = np.random.default_rng(2), [[9, WIDTH], [8, WIDTH], [2, WIDTH], [WIDTH], [WIDTH]]
    quantised = [g.constant(rng.integers(0, 256, shape, np.uint8)) for shape in shapes]
    steps, zeros = [scalar(g, 0.01)] * 5, [scalar(g, 120, np.uint8)] * 5
    c = g.node("QEmbedLayerNormalization", ids, kinds, *quantised, marks, *steps, *zeros, outputs=2, **OURS)
    return [value for embedded in (a, b, c) for value in (embedded[0], (embedded[1], TensorProto.INT32))]


def words_of(g: GraphBuilder, name: str, count: int) -> Any:
    """Add indices below `count`, computed of floats."""
    share = g.node("Sigmoid", g.input(name, [BATCH, WORDS]))
    return g.node("Floor", g.node("Mul", share, scalar(g, count - 0.01)))


def n_bits(g: GraphBuilder, x: str, bits: int, block: int, *, zeros: str = "", bias: str = "") -> Any:
    rows, columns = 24, 6
    blocks = -(-rows // block)
    rng = np.random.default_rng(bits)
    packed = g.constant(rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8))
    scales = g.constant(rng.uniform(0.01, 0.1, columns * blocks).astype(np.float32))
    if zeros == "packed":
        zeros = g.constant(rng.integers(0, 256, columns * -(-blocks * bits // 8), np.uint8))
    elif zeros == "floats":
        zeros = g.constant(rng.uniform(0, 9, columns * blocks).astype(np.float32))
    return g.node(
        "MatMulNBits",
        x,
        packed,
        scales,
        zeros,
        "",
        bias,
        K=rows,
        N=columns,
        bits=bits,
        block_size=block,
        **OURS,
    )


@case(17, 17)
def products_by_weights_of_few_bits(g: GraphBuilder, v: int) -> Any:
    x = g.input("x", [3, 24])
    return [
        n_bits(g, x, 4, 16),
        n_bits(g, x, 4, 16, zeros="packed", bias=g.weight(6)),
        n_bits(g, x, 4, 32, zeros="floats"),
        n_bits(g, x, 8, 16, zeros="packed"),
        n_bits(g, x, 2, 16),
        *(bitsandbytes(g, x, kind) for kind in (0, 1)),
    ]


def bitsandbytes(g: GraphBuilder, x: str, kind: int) -> Any:
    rng = np.random.default_rng(kind)
    packed = g.constant(rng.integers(0, 256, 24 * 6 // 2, np.uint8))
    scales = g.constant(rng.uniform(0.1, 1, 24 * 6 // 16).astype(np.float32))
    return g.node("MatMulBnb4", x, packed, scales, K=24, N=6, block_size=16, quant_type=kind, **OURS)


@case(17, 17)
def tables_of_few_bits(g: GraphBuilder, v: int) -> Any:
    rng, ids = np.random.default_rng(1), g.node("Cast", words_of(g, "ids", 9), to=TensorProto.INT64)
    scales, table = (
        g.constant(rng.uniform(0.1, 1, (9, 2)).astype(np.float32)),
        rng.integers(0, 256, (9, 32), np.uint8),
    )
    zeros, options = g.constant(rng.integers(0, 256, (9, 2), np.uint8)), {"quantize_axis": 1, **OURS}
    return [
        g.node(
            "GatherBlockQuantized", g.constant(table), ids, scales, zeros, bits=8, block_size=16, **options
        ),
        g.node("GatherBlockQuantized", g.constant(table), ids, scales, bits=4, block_size=32, **options),
    ]


@case(17, 17)
def quantised_attention(g: GraphBuilder, v: int) -> Any:
    x, scale, zero = g.node("DynamicQuantizeLinear", words(g), outputs=3)
    weights = g.constant(np.random.default_rng(1).integers(-99, 99, (WIDTH, 3 * WIDTH), np.int8))
    return g.node(
        "QAttention", x, weights, g.weight(3 * WIDTH), scale, scalar(g, 0.01), mask(g, BATCH, WORDS), zero,
        scalar(g, 0, np.int8), num_heads=HEADS, **OURS,
    )  # fmt: skip


@case(17, 17)
def quantised_with_channels_last(g: GraphBuilder, v: int) -> Any:
    step, zero = scalar(g, 0.02), scalar(g, 120, np.uint8)
    other = scalar(g, 0.03), scalar(g, 110, np.uint8)
    x = g.node("Transpose", g.node("QuantizeLinear", image(g), step, zero), perm=[0, 2, 3, 1])
    weights = g.constant(np.random.default_rng(1).integers(-9, 9, (6, 4, 3, 3), np.int8))
    options: dict[str, Any] = {"channels_last": 1, **OURS}
    quantised = (step, zero, weights, scalar(g, 0.05), scalar(g, 0, np.int8), *other)
    y = g.node("QLinearConv", x, *quantised, pads=[1] * 4, strides=[2, 2], **options)
    pooled = g.node("QLinearAveragePool", x, step, zero, *other, kernel_shape=[2, 2], **options)
    chosen = g.node("Greater", image_like(g), scalar(g, 0))
    return [
        (y, TensorProto.UINT8),
        (pooled, TensorProto.UINT8),
        (g.node("NhwcMaxPool", x, kernel_shape=[2, 3], strides=[2, 1], **OURS), TensorProto.UINT8),
        (g.node("QLinearWhere", chosen, x, step, zero, x, *other, step, zero, **OURS), TensorProto.UINT8),
    ]


def image_like(g: GraphBuilder) -> str:
    return g.input("chosen", [1, 6, 8, 4])


@case(17, 17)
def rounded_to_16_bits(g: GraphBuilder, v: int) -> Any:
    step, zero = scalar(g, 1e-3), scalar(g, 30_000, np.uint16)
    return g.node(
        "DequantizeLinear", g.node("QuantizeLinear", image(g), step, zero, **OURS), step, zero, **OURS
    )


@case(17, 17)
def others_of_onnx_runtime(g: GraphBuilder, v: int) -> Any:
    x, rows = image(g), g.input("rows", [5, 7])
    grid, pads = g.input("grid", [1, 3, 3, 2]), g.ints(0, 0, 1, 2, 0, 0, 2, 1)
    bounds = [scalar(g, number) for number in (0, 4, 1)]
    apart = g.node("ExpandDims", x, scalar(g, 1, np.int32), **OURS)
    turned = g.node("FusedMatMul", x, x, transBatchA=1, transBatchB=1, transB=1, alpha=0.5, **OURS)
    distances = [
        g.node("CDist", rows, g.weight(3, 7), metric=name, **OURS) for name in ("sqeuclidean", "euclidean")
    ]
    return [
        g.node("GridSample", x, grid, mode="bilinear", **OURS),
        g.node("Pad", x, pads, mode="reflect", **OURS),
        g.node("Trilu", x, upper=1, **OURS),
        g.node("Add", g.node("Range", *bounds, **OURS), g.input("four", [4])),
        g.node("Relu", apart),
        g.node("GatherND", rows, g.constant(np.array([[4, 0], [2, -1]])), **OURS),
        g.node("TransposeMatMul", rows, rows, transB=1, alpha=0.5, **OURS),
        g.node("UnfoldTensor", rows, dim=0, size=3, step=2, **OURS),
        turned,
        *distances,
    ]
