"""ResNet-50 with the stride in the 3×3 convolutions (which is called v1.5), seeded random weights.

Source: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first block
EXPANSION = 4


def build_resnet50(*, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, 64), 7, 2, "stem"), "stem.relu")
    y, inner = graph.max_pool(y, 3, 2, "stem.pool", pad=1), 64
    for stage, (width, blocks, stride) in enumerate(STAGES, start=1):
        for number in range(blocks):
            outer = EXPANSION * width
            name = f"layer{stage}.{number}"
            y = bottleneck(graph, y, (inner, width, outer), stride if number == 0 else 1, name)
            inner = outer
    graph.classifier(y, inner, classes)
    return graph.to_model("resnet50", batch=batch, size=size, classes=classes)


def bottleneck(
    graph: Graph, x: str, channels: tuple[int, int, int], stride: int, name: str, *, groups: int = 1
) -> str:
    """Narrow by a 1×1 convolution, 3×3, widen by another 1×1, and a shortcut."""
    inner, width, outer = channels
    y = graph.relu(graph.conv_bn(x, (inner, width), 1, 1, f"{name}.0"), f"{name}.0.relu")
    y = graph.conv_bn(y, (width, width), 3, stride, f"{name}.1", groups=groups)
    y = graph.conv_bn(graph.relu(y, f"{name}.1.relu"), (width, outer), 1, 1, f"{name}.2")
    same = (inner, stride) == (outer, 1)
    shortcut = x if same else graph.conv_bn(x, (inner, outer), 1, stride, f"{name}.down")
    return graph.relu(graph.add(y, shortcut, f"{name}.add"), f"{name}.relu")
