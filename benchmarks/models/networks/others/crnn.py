"""CRNN, a reader of text lines, seeded random weights: seven convolutions, then two bidirectional LSTMs over the columns.

Source: Shi et al., "An End-to-End Trainable Neural Network for Image-based Sequence Recognition", 2015, table 1, with batch norm
after five of the convolutions (the paper's: two). The pools of the last two pairs halve the height alone.
"""

from __future__ import annotations

import numpy as np
import onnx
from benchmarks.models.networks.graph import Graph

STAGES = (  # channels of each convolution; batch norm after each; the pool halves the width as well
    ((64,), False, True),
    ((128,), False, True),
    ((256, 256), True, False),
    ((512, 512), True, False),
)
HEIGHT = 32
HIDDEN = 256


def build_crnn(*, seed: int = 0, width: int = 100, symbols: int = 37) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (1, 1, 32, width), output ``logits`` (width // 4 + 1, 1, symbols).

    `width` is a multiple of 4.
    """
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y, inner = "x", 1
    for stage, (outputs, normed, both) in enumerate(STAGES):
        for number, outer in enumerate(outputs):
            name = f"conv{stage}.{number}"
            if normed:
                y = graph.conv_bn(y, (inner, outer), 3, 1, name)
            else:
                y = graph.conv(y, (inner, outer), name, kernel=3, pad=1, gain=2.0)
            y, inner = graph.relu(y, f"{name}.relu"), outer
        strides, pads = ([2, 2], [0, 0, 0, 0]) if both else ([2, 1], [0, 1, 0, 1])
        y = graph.like("MaxPool", [y], f"pool{stage}", kernel_shape=[2, 2], strides=strides, pads=pads)
    y = graph.conv(y, (inner, inner), "last", kernel=2, bias=False, gain=2.0)
    y = graph.relu(graph.batch_norm(y, inner, "last"), "last.relu")
    y = graph.like("Squeeze", [y, graph.ints("height", [2])], "row")
    y = graph.like("Transpose", [y], "columns", perm=[2, 0, 1])
    steps = width // 4 + 1
    for number in range(2):
        y, inner = _lstm(graph, y, inner, steps, f"lstm{number}"), 2 * HIDDEN
    graph.dense(y, (inner, symbols), "logits")
    return graph.finish("crnn", {"x": (1, 1, HEIGHT, width)}, {"logits": (steps, 1, symbols)})


def _lstm(graph: Graph, x: str, inner: int, steps: int, name: str) -> str:
    """Both directions side by side: of (steps, 1, inner), (steps, 1, 2 · HIDDEN)."""
    rng = graph.rng
    weights = [
        graph.weight(f"{name}.weight", rng.normal(0.0, np.sqrt(1.0 / inner), (2, 4 * HIDDEN, inner))),
        graph.weight(f"{name}.state.weight", rng.normal(0.0, np.sqrt(1.0 / HIDDEN), (2, 4 * HIDDEN, HIDDEN))),
        graph.weight(f"{name}.bias", rng.normal(0.0, 0.1, (2, 8 * HIDDEN))),
    ]
    y = graph.like("LSTM", [x, *weights], f"{name}.both", hidden_size=HIDDEN, direction="bidirectional")
    y = graph.like("Transpose", [y], f"{name}.turned", perm=[0, 2, 1, 3])
    return graph.like("Reshape", [y, graph.ints("sides", [steps, 1, 2 * HIDDEN])], name)
