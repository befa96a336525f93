"""DeepLabV3 on a MobileNetV2, seeded random weights: dilated convolutions at three rates, and a class for every pixel.

Source: Chen et al., "Rethinking Atrous Convolution for Semantic Image Segmentation", 2017, section 3.3, with 128 channels for
each way; Sandler et al., "MobileNetV2", 2018, section 6.3, for the network below, with fewer blocks at the end.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph, inverted_residual

STAGES = (  # expansion, channels, blocks, stride of the first block, dilation
    (1, 16, 1, 1, 1),
    (6, 24, 2, 2, 1),
    (6, 32, 3, 2, 1),
    (6, 64, 2, 2, 1),
    (6, 96, 2, 1, 1),
    (6, 160, 2, 1, 2),
)
STEM_CHANNELS = 32
OUTPUT_STRIDE = 16
RATES = (6, 12, 18)
WIDTH = 128


def build_deeplab_v3(*, seed: int = 0, batch: int = 1, size: int = 256, classes: int = 21) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``scores`` (batch, classes, size, size).

    `size` is a multiple of 16.
    """
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu6(graph.conv_bn("x", (3, STEM_CHANNELS), 3, 2, "stem"), "stem.relu")
    inner = STEM_CHANNELS
    for stage, (expansion, outer, blocks, stride, dilation) in enumerate(STAGES, start=1):
        for number in range(blocks):
            first, name = stride if number == 0 else 1, f"stage{stage}.{number}"
            y = inverted_residual(graph, y, (inner, outer), expansion, first, name, dilation=dilation)
            inner = outer
    small = [batch, WIDTH, size // OUTPUT_STRIDE, size // OUTPUT_STRIDE]
    y = graph.concat([(way, WIDTH) for way in _ways(graph, y, inner, small)], "joined")
    y = graph.relu(graph.conv_bn(y, ((len(RATES) + 2) * WIDTH, WIDTH), 1, 1, "head.0"), "head.0.relu")
    y = graph.relu(graph.conv_bn(y, (WIDTH, WIDTH), 3, 1, "head.1"), "head.1.relu")
    y = graph.conv(y, (WIDTH, classes), "head.2", gain=2.0)
    shape = [batch, classes, size, size]
    _enlarged(graph, y, shape, "scores")
    return graph.finish("deeplab_v3", {"x": (batch, 3, size, size)}, {"scores": shape})


def _ways(graph: Graph, x: str, inner: int, shape: list[int]) -> list[str]:
    """Look at each pixel alone, at its surroundings at each rate, and at the mean of the image; each as `shape` says."""
    ways = [graph.conv_bn(x, (inner, WIDTH), 1, 1, "way1")]
    ways += [graph.conv_bn(x, (inner, WIDTH), 3, 1, f"way{rate}", dilation=rate) for rate in RATES]
    ways = [graph.relu(way, f"{way}.relu") for way in ways]
    y = graph.conv_bn(graph.like("GlobalAveragePool", [x], "image"), (inner, WIDTH), 1, 1, "image.way")
    return [*ways, _enlarged(graph, graph.relu(y, "image.relu"), shape, "image.wide")]


def _enlarged(graph: Graph, x: str, shape: list[int], name: str) -> str:
    """Resize bilinearly, as PyTorch does without `align_corners`."""
    sizes = graph.ints(f"{name}.sizes", shape)
    return graph.like(
        "Resize", [x, "", "", sizes], name, mode="linear", coordinate_transformation_mode="half_pixel"
    )
