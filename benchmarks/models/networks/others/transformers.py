"""A vision transformer and a decoder of words, seeded random weights: both norm what goes into a part, not what comes out.

Queries, keys and values are one dense layer, which is split.

Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020, section 3.1, half as deep as DeiT-Ti (Touvron et al., 2020,
table 1); Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019, section 2.3, with fewer and
narrower blocks, fewer words, and weights of its own for the last layer.
"""

from __future__ import annotations

import numpy as np
import onnx
from benchmarks.models.networks.graph import Graph
from onnx import TensorProto

PATCH = 16
FEED_FORWARD = 4  # times the hidden size
SMALL = 0.02  # standard deviation of embeddings
NEVER = -1e9


def build_vit(
    *, seed: int = 0, size: int = 224, classes: int = 1000, layers: int = 6, hidden: int = 192, heads: int = 3
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (1, 3, size, size), output ``logits`` (1, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    patches = (size // PATCH) ** 2
    y = graph.conv("x", (3, hidden), "patches", kernel=PATCH, stride=PATCH)
    y = graph.like("Reshape", [y, graph.ints("flat", [1, hidden, patches])], "patches.flat")
    y = graph.like("Transpose", [y], "patches.words", perm=[0, 2, 1])
    joined = graph.node("Concat", [_embedding(graph, (1, 1, hidden), "class"), y], "words", axis=1)
    graph.second_moment[joined] = graph.second_moment[y]
    y = graph.add(joined, _embedding(graph, (1, patches + 1, hidden), "places"), "placed")
    for number in range(layers):
        y = _block(graph, y, (1, patches + 1, hidden), heads, f"layer{number}")
    y = graph.layer_norm(y, hidden, "norm")
    y = graph.like("Gather", [y, graph.ints("first", [0])], "first.word", axis=1)
    graph.gemm(graph.like("Flatten", [y], "flatten", axis=1), (hidden, classes), "logits")
    return graph.to_model("vit", batch=1, size=size, classes=classes)


def build_gpt(
    *,
    seed: int = 0,
    batch: int = 1,
    sequence: int = 96,
    words: int = 8000,
    layers: int = 4,
    hidden: int = 384,
    heads: int = 6,
) -> onnx.ModelProto:
    """Return the model: input ``tokens`` of shape (batch, sequence), int64 below `words`; output ``logits`` (batch, sequence, words)."""
    graph = Graph(seed)
    y = graph.like("Gather", [_embedding(graph, (words, hidden), "words"), "tokens"], "embedded", axis=0)
    y = graph.add(y, _embedding(graph, (1, sequence, hidden), "places"), "placed")
    mask = graph.constant("mask", np.triu(np.full((sequence, sequence), NEVER), 1))
    for number in range(layers):
        y = _block(graph, y, (batch, sequence, hidden), heads, f"layer{number}", mask=mask)
    y = graph.layer_norm(y, hidden, "norm")
    graph.dense(y, (hidden, words), "logits", bias=False)
    shapes = {"tokens": (batch, sequence)}, {"logits": (batch, sequence, words)}
    return graph.finish("gpt", *shapes, input_type=TensorProto.INT64)


def _embedding(graph: Graph, shape: tuple[int, ...], name: str) -> str:
    graph.second_moment[name] = SMALL**2
    return graph.weight(name, graph.rng.normal(0.0, SMALL, shape))


def _block(
    graph: Graph, x: str, shape: tuple[int, int, int], heads: int, name: str, *, mask: str | None = None
) -> str:
    """Attention and two dense layers; each reads normed values and has a residual connection."""
    hidden = shape[-1]
    y = graph.layer_norm(x, hidden, f"{name}.norm1")
    x = graph.add(x, _attention(graph, y, shape, heads, f"{name}.attention", mask), f"{name}.sum1")
    y = graph.layer_norm(x, hidden, f"{name}.norm2")
    y = graph.gelu(graph.dense(y, (hidden, FEED_FORWARD * hidden), f"{name}.wide"), f"{name}.gelu")
    return graph.add(x, graph.dense(y, (FEED_FORWARD * hidden, hidden), f"{name}.narrow"), f"{name}.sum2")


def _attention(
    graph: Graph, x: str, shape: tuple[int, int, int], heads: int, name: str, mask: str | None
) -> str:
    batch, sequence, hidden = shape
    apart = graph.ints("apart", [batch, sequence, 3, heads, hidden // heads])
    y = graph.dense(x, (hidden, 3 * hidden), f"{name}.qkv")
    y = graph.like("Reshape", [y, apart], f"{name}.apart")
    y = graph.like("Transpose", [y], f"{name}.heads", perm=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.like("Squeeze", [part, graph.ints("outermost", [0])], f"{part}.alone")
        for part in graph.split(y, 3, 0, f"{name}.part")
    )
    key = graph.like("Transpose", [key], f"{key}.turned", perm=[0, 1, 3, 2])
    scale = graph.constant("scale", (hidden // heads) ** -0.5)
    scores = graph.node(
        "Mul", [graph.node("MatMul", [query, key], f"{name}.scores"), scale], f"{name}.scaled"
    )
    if mask is not None:
        scores = graph.node("Add", [scores, mask], f"{name}.masked")
    shares = graph.node("Softmax", [scores], f"{name}.softmax", axis=-1)
    mixed = graph.node("MatMul", [shares, value], f"{name}.mixed")
    graph.second_moment[mixed] = graph.second_moment[value]
    y = graph.like("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
    y = graph.like("Reshape", [y, graph.ints("joined", shape)], f"{name}.joined")
    return graph.dense(y, (hidden, hidden), f"{name}.out")
