"""DenseNet-121, seeded random weights: each layer reads all before it; batch norm and ReLU come before the convolutions.

Source: Huang et al., "Densely Connected Convolutional Networks", 2016, table 1.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

LAYERS = (6, 12, 24, 16)
STEM_CHANNELS = 64
GROWTH = 32
NARROW = 4 * GROWTH


def build_densenet121(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, STEM_CHANNELS), 7, 2, "stem"), "stem.relu")
    y, channels = graph.max_pool(y, 3, 2, "stem.pool", pad=1), STEM_CHANNELS
    for block, layers in enumerate(LAYERS, start=1):
        if block > 1:
            y, channels = _transition(graph, y, channels, f"transition{block - 1}"), channels // 2
        for number in range(layers):
            name = f"block{block}.{number}"
            y = graph.concat([(y, channels), (_layer(graph, y, channels, name), GROWTH)], f"{name}.joined")
            channels += GROWTH
    y = graph.relu(graph.batch_norm(y, channels, "last"), "last.relu")
    graph.classifier(y, channels, classes)
    return graph.to_model("densenet121", batch=batch, size=size, classes=classes)


def _layer(graph: Graph, x: str, channels: int, name: str) -> str:
    y = graph.relu(graph.batch_norm(x, channels, f"{name}.0"), f"{name}.0.relu")
    y = graph.relu(graph.conv_bn(y, (channels, NARROW), 1, 1, f"{name}.1"), f"{name}.1.relu")
    return graph.conv(y, (NARROW, GROWTH), f"{name}.2", kernel=3, pad=1, bias=False, gain=2.0)


def _transition(graph: Graph, x: str, channels: int, name: str) -> str:
    """Half of the channels, a quarter of the pixels."""
    y = graph.relu(graph.batch_norm(x, channels, name), f"{name}.relu")
    y = graph.conv(y, (channels, channels // 2), f"{name}.conv", bias=False, gain=2.0)
    return graph.like("AveragePool", [y], f"{name}.pool", kernel_shape=[2, 2], strides=[2, 2])
