"""Transformer encoders as `torch.onnx.export` writes them: each dense layer a MatMul and an Add, GELU by Erf.

The layer norms come after the sums, as in the paper and in BERT. What goes in are embeddings.

Source: Vaswani et al., "Attention Is All You Need", 2017, section 3; Devlin et al., "BERT", 2018, for the sizes.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from benchmarks.models.networks.graph import Graph
from onnx import numpy_helper


class EncoderGraph:
    """The layers of an encoder, over a `Graph`."""

    def __init__(self, seed: int, *, batch: int, sequence: int, hidden: int, heads: int) -> None:
        self.graph = Graph(seed)
        self._hidden, self._heads = hidden, heads
        graph = self.graph
        self._split = _shape(graph, "split", [batch, sequence, heads, hidden // heads])
        self._joined = _shape(graph, "joined", [batch, sequence, hidden])
        constants = {"scale": math.sqrt(hidden / heads), "sqrt2": math.sqrt(2.0), "one": 1.0, "half": 0.5}
        for name, value in constants.items():
            graph.weight(name, np.array(value))

    def layer(self, x: str, feed_forward: int, name: str) -> str:
        """Attention and two dense layers, each added to what went in and normalised."""
        y = self._norm(self._add(self._attention(x, f"{name}.attention"), x, f"{name}.sum1"), f"{name}.norm1")
        z = self._gelu(self._dense(y, (self._hidden, feed_forward), f"{name}.wide"), f"{name}.gelu")
        z = self._dense(z, (feed_forward, self._hidden), f"{name}.narrow")
        return self._norm(self._add(z, y, f"{name}.sum2"), f"{name}.norm2")

    def _attention(self, x: str, name: str) -> str:
        query, key, value = (
            self._heads_of(self._dense(x, (self._hidden, self._hidden), f"{name}.{part}"), order)
            for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        node = self.graph.node
        scores = node("Div", [node("MatMul", [query, key], f"{name}.scores"), "scale"], f"{name}.scaled")
        shares = node("Softmax", [scores], f"{name}.softmax", axis=-1)
        mixed = node("MatMul", [shares, value], f"{name}.mixed")
        joined = node("Transpose", [mixed], f"{name}.transposed", perm=[0, 2, 1, 3])
        joined = node("Reshape", [joined, self._joined], f"{name}.joined")
        return self._dense(joined, (self._hidden, self._hidden), f"{name}.out")

    def _heads_of(self, x: str, order: list[int]) -> str:
        split = self.graph.node("Reshape", [x, self._split], f"{x}.split")
        return self.graph.node("Transpose", [split], f"{x}.heads", perm=order)

    def _dense(self, x: str, sizes: tuple[int, int], name: str) -> str:
        graph = self.graph
        w = graph.weight(f"{name}.weight", graph.rng.normal(0.0, np.sqrt(1.0 / sizes[0]), sizes))
        bias = graph.weight(f"{name}.bias", graph.rng.normal(0.0, 0.1, sizes[1]))
        return self._add(bias, graph.node("MatMul", [x, w], f"{name}.matmul"), name)

    def _gelu(self, x: str, name: str) -> str:
        node = self.graph.node
        erf = node("Erf", [node("Div", [x, "sqrt2"], f"{name}.div")], f"{name}.erf")
        y = node("Mul", [x, self._add(erf, "one", f"{name}.add")], f"{name}.mul")
        return node("Mul", [y, "half"], name)

    def _norm(self, x: str, name: str) -> str:
        graph = self.graph
        scale = graph.weight(f"{name}.scale", graph.rng.uniform(0.8, 1.2, self._hidden))
        shift = graph.weight(f"{name}.shift", graph.rng.normal(0.0, 0.1, self._hidden))
        return graph.node("LayerNormalization", [x, scale, shift], name, axis=-1, epsilon=1e-5)

    def _add(self, x: str, y: str, name: str) -> str:
        return self.graph.node("Add", [x, y], name)


def build_encoder(
    *,
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    seed: int = 0,
    batch: int = 1,
    sequence: int = 128,
) -> onnx.ModelProto:
    """Return the model: input ``x`` and output ``y``, both of shape (batch, sequence, hidden)."""
    encoder = EncoderGraph(seed, batch=batch, sequence=sequence, hidden=hidden, heads=heads)
    y = "x"
    for number in range(layers):
        y = encoder.layer(y, feed_forward, f"layer{number}")
    encoder.graph.node("Identity", [y], "y")
    shape = (batch, sequence, hidden)
    return encoder.graph.finish(f"encoder{layers}", {"x": shape}, {"y": shape})


def _shape(graph: Graph, name: str, dims: list[int]) -> str:
    graph.weights.append(numpy_helper.from_array(np.array(dims, np.int64), name))
    return name
