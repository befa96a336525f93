"""ShuffleNetV2 of width 1.0, seeded random weights: half of the channels passes by, then the halves are shuffled.

Source: Ma et al., "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design", 2018, figure 3 and table 5.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STAGES = ((116, 4), (232, 8), (464, 4))  # channels, units; the first unit has a stride of 2
STEM_CHANNELS = 24
LAST_CHANNELS = 1024


def build_shufflenet_v2(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes).

    `size` is a multiple of 32.
    """
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, STEM_CHANNELS), 3, 2, "stem"), "stem.relu")
    y, inner, pixels = graph.max_pool(y, 3, 2, "stem.pool", pad=1), STEM_CHANNELS, size // 4
    for stage, (outer, units) in enumerate(STAGES, start=2):
        pixels //= 2
        for number in range(units):
            name = f"stage{stage}.{number}"
            halves = _down(graph, y, (inner, outer), name) if number == 0 else _same(graph, y, outer, name)
            joined = graph.concat([(half, outer // 2) for half in halves], f"{name}.joined")
            y, inner = _shuffled(graph, joined, (batch, outer, pixels, pixels), name), outer
    y = graph.relu(graph.conv_bn(y, (inner, LAST_CHANNELS), 1, 1, "last"), "last.relu")
    graph.classifier(y, LAST_CHANNELS, classes)
    return graph.to_model("shufflenet_v2", batch=batch, size=size, classes=classes)


def _down(graph: Graph, x: str, channels: tuple[int, int], name: str) -> list[str]:
    """Both ways read all channels, and halve the image."""
    inner, half = channels[0], channels[1] // 2
    y = graph.conv_bn(x, (inner, inner), 3, 2, f"{name}.left.0", groups=inner)
    y = graph.relu(graph.conv_bn(y, (inner, half), 1, 1, f"{name}.left.1"), f"{name}.left.relu")
    return [y, _way(graph, x, (inner, half), 2, f"{name}.right")]


def _same(graph: Graph, x: str, channels: int, name: str) -> list[str]:
    half = channels // 2
    left, right = graph.split(x, 2, 1, f"{name}.halves")
    return [left, _way(graph, right, (half, half), 1, f"{name}.right")]


def _way(graph: Graph, x: str, channels: tuple[int, int], stride: int, name: str) -> str:
    inner, half = channels
    y = graph.relu(graph.conv_bn(x, (inner, half), 1, 1, f"{name}.0"), f"{name}.0.relu")
    y = graph.conv_bn(y, (half, half), 3, stride, f"{name}.1", groups=half)
    return graph.relu(graph.conv_bn(y, (half, half), 1, 1, f"{name}.2"), f"{name}.2.relu")


def _shuffled(graph: Graph, x: str, shape: tuple[int, int, int, int], name: str) -> str:
    """Take channels from the halves in turns."""
    batch, channels, height, width = shape
    sizes = f"of{channels}"
    apart = graph.ints(f"{sizes}.apart", [batch, 2, channels // 2, height, width])
    y = graph.like("Reshape", [x, apart], f"{name}.apart")
    y = graph.like("Transpose", [y], f"{name}.turns", perm=[0, 2, 1, 3, 4])
    return graph.like("Reshape", [y, graph.ints(f"{sizes}.joined", shape)], name)
