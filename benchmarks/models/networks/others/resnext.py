"""A ResNeXt of half ResNeXt-50's depth, seeded random weights: 3×3 convolutions of 32 groups, of 4 channels each at first.

Source: Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2016, table 1 (32×4d), with 2, 2, 3 and 2
blocks in place of 3, 4, 6 and 3.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph
from benchmarks.models.networks.resnet50 import bottleneck

STAGES = ((128, 2, 1), (256, 2, 2), (512, 3, 2), (1024, 2, 2))  # width, blocks, stride of the first block
STEM_CHANNELS = 64
GROUPS = 32
EXPANSION = 2


def build_resnext(*, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, STEM_CHANNELS), 7, 2, "stem"), "stem.relu")
    y, inner = graph.max_pool(y, 3, 2, "stem.pool", pad=1), STEM_CHANNELS
    for stage, (width, blocks, stride) in enumerate(STAGES, start=1):
        outer = EXPANSION * width
        for number in range(blocks):
            first = stride if number == 0 else 1
            y = bottleneck(graph, y, (inner, width, outer), first, f"layer{stage}.{number}", groups=GROUPS)
            inner = outer
    graph.classifier(y, inner, classes)
    return graph.to_model("resnext", batch=batch, size=size, classes=classes)
