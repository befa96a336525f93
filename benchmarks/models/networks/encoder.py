"""Transformer encoders as `torch.onnx.export` writes them: each dense layer a MatMul and an Add, GELU by Erf.

The layer norms come after the sums, as in the paper and in BERT. What goes in are embeddings.

Source: Vaswani et al., "Attention Is All You Need", 2017, section 3; Devlin et al., "BERT", 2018, for the sizes.
"""

from __future__ import annotations

import math

import onnx
from benchmarks.models.networks.graph import Graph


class EncoderGraph:
    """The layers of an encoder, over a `Graph`."""

    def __init__(self, seed: int, *, batch: int, sequence: int, hidden: int, heads: int) -> None:
        graph = self.graph = Graph(seed)
        graph.second_moment["x"] = 1.0
        self._hidden = hidden
        self._split = graph.ints("split", [batch, sequence, heads, hidden // heads])
        self._joined = graph.ints("joined", [batch, sequence, hidden])
        constants = {"scale": math.sqrt(hidden / heads), "sqrt2": math.sqrt(2.0), "one": 1.0, "half": 0.5}
        for name, value in constants.items():
            graph.constant(name, value)

    def layer(self, x: str, feed_forward: int, name: str) -> str:
        """Attention and two dense layers, each with a residual connection and a norm."""
        graph, hidden = self.graph, self._hidden
        y = graph.add(self._attention(x, f"{name}.attention"), x, f"{name}.sum1")
        y = graph.layer_norm(y, hidden, f"{name}.norm1")
        z = graph.gelu(graph.dense(y, (hidden, feed_forward), f"{name}.wide"), f"{name}.gelu")
        z = graph.dense(z, (feed_forward, hidden), f"{name}.narrow")
        return graph.layer_norm(graph.add(z, y, f"{name}.sum2"), hidden, f"{name}.norm2")

    def _attention(self, x: str, name: str) -> str:
        query, key, value = (
            self._heads_of(self.graph.dense(x, (self._hidden, self._hidden), f"{name}.{part}"), order)
            for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        node = self.graph.node
        scores = node("Div", [node("MatMul", [query, key], f"{name}.scores"), "scale"], f"{name}.scaled")
        shares = node("Softmax", [scores], f"{name}.softmax", axis=-1)
        mixed = node("MatMul", [shares, value], f"{name}.mixed")
        self.graph.second_moment[mixed] = self.graph.second_moment[value]
        joined = self.graph.like("Transpose", [mixed], f"{name}.transposed", perm=[0, 2, 1, 3])
        joined = self.graph.like("Reshape", [joined, self._joined], f"{name}.joined")
        return self.graph.dense(joined, (self._hidden, self._hidden), f"{name}.out")

    def _heads_of(self, x: str, order: list[int]) -> str:
        split = self.graph.like("Reshape", [x, self._split], f"{x}.split")
        return self.graph.like("Transpose", [split], f"{x}.heads", perm=order)


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
