"""A small ConvNeXt, seeded random weights: 7×7 depthwise convolutions, layer norms over channels that are moved last.

Source: Liu et al., "A ConvNet for the 2020s", 2022, figure 4, with 2, 2, 4 and 2 blocks of 64 to 512 channels (ConvNeXt-T has
3, 3, 9 and 3 of 96 to 768) and a scale of each branch around 0.1, which a trained one comes to.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STAGES = ((64, 2), (128, 2), (256, 4), (512, 2))  # channels, blocks
STEM_KERNEL = 4
EXPANSION = 4
CHANNELS_LAST = [0, 2, 3, 1]
CHANNELS_FIRST = [0, 3, 1, 2]


def build_convnext(*, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    inner = STAGES[0][0]
    y = graph.conv("x", (3, inner), "stem", kernel=STEM_KERNEL, stride=STEM_KERNEL)
    y = _image_norm(graph, y, inner, "stem.norm")
    for stage, (channels, blocks) in enumerate(STAGES, start=1):
        if channels != inner:
            y = _image_norm(graph, y, inner, f"down{stage}.norm")
            y = graph.conv(y, (inner, channels), f"down{stage}", kernel=2, stride=2)
            inner = channels
        for number in range(blocks):
            y = _block(graph, y, channels, f"stage{stage}.{number}")
    y = graph.like("GlobalAveragePool", [y], "pool")
    y = graph.layer_norm(graph.like("Flatten", [y], "flatten", axis=1), inner, "norm")
    graph.gemm(y, (inner, classes), "logits")
    return graph.to_model("convnext", batch=batch, size=size, classes=classes)


def _image_norm(graph: Graph, x: str, channels: int, name: str) -> str:
    y = graph.like("Transpose", [x], f"{name}.in", perm=CHANNELS_LAST)
    return graph.like("Transpose", [graph.layer_norm(y, channels, name)], f"{name}.out", perm=CHANNELS_FIRST)


def _block(graph: Graph, x: str, channels: int, name: str) -> str:
    wide = EXPANSION * channels
    y = graph.conv(x, (channels, channels), f"{name}.depthwise", kernel=7, pad=3, groups=channels)
    y = graph.like("Transpose", [y], f"{name}.last", perm=CHANNELS_LAST)
    y = graph.layer_norm(y, channels, f"{name}.norm")
    y = graph.gelu(graph.dense(y, (channels, wide), f"{name}.wide"), f"{name}.gelu")
    y = graph.dense(y, (wide, channels), f"{name}.narrow")
    scale = graph.rng.uniform(0.05, 0.15, channels)
    scaled = graph.node("Mul", [graph.weight(f"{name}.scale", scale), y], f"{name}.scaled")
    graph.second_moment[scaled] = float((scale**2).mean()) * graph.second_moment[y]
    return graph.add(x, graph.like("Transpose", [scaled], f"{name}.first", perm=CHANNELS_FIRST), name)
