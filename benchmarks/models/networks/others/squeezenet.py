"""SqueezeNet 1.1, seeded random weights: no batch norm, no dense layer; each module narrows, then widens two ways.

Source: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size", 2016, section 3;
the sizes of version 1.1 are from the authors' repository (forresti/SqueezeNet).
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STEM_CHANNELS = 64
STAGES = (  # squeezed channels, and what each of the two ways widens them to
    ((16, 64), (16, 64)),
    ((32, 128), (32, 128)),
    ((48, 192), (48, 192), (64, 256), (64, 256)),
)


def build_squeezenet(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y, inner = graph.conv("x", (3, STEM_CHANNELS), "stem", kernel=3, stride=2, gain=2.0), STEM_CHANNELS
    y = graph.relu(y, "stem.relu")
    for stage, modules in enumerate(STAGES, start=1):
        y = graph.like("MaxPool", [y], f"pool{stage}", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        for number, (narrow, wide) in enumerate(modules):
            y, inner = _fire(graph, y, (inner, narrow, wide), f"fire{stage}.{number}"), 2 * wide
    y = graph.relu(graph.conv(y, (inner, classes), "last", gain=2.0), "last.relu")
    graph.node("Flatten", [graph.like("GlobalAveragePool", [y], "pool")], "logits", axis=1)
    return graph.to_model("squeezenet", batch=batch, size=size, classes=classes)


def _fire(graph: Graph, x: str, channels: tuple[int, int, int], name: str) -> str:
    inner, narrow, wide = channels
    y = graph.relu(graph.conv(x, (inner, narrow), f"{name}.squeeze", gain=2.0), f"{name}.squeeze.relu")
    ways = []
    for kernel in (1, 3):
        way = f"{name}.expand{kernel}"
        conv = graph.conv(y, (narrow, wide), way, kernel=kernel, pad=kernel // 2, gain=2.0)
        ways.append((graph.relu(conv, f"{way}.relu"), wide))
    return graph.concat(ways, name)
