"""VGG-11, seeded random weights: eight plain convolutions, then three dense layers with 93 % of the weights (531 MB).

Source: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014, table 1, column A.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STAGES = ((1, 1), (2, 1), (4, 2), (8, 2), (8, 2))  # times the first one's channels, convolutions; then a pool


def stages_of(width: int) -> list[list[tuple[int, int]]]:
    """Return the channels in and out of each convolution, stage by stage."""
    stages, inner = [], 3
    for times, convolutions in STAGES:
        outer = times * width
        stages.append([(inner, outer), *[(outer, outer)] * (convolutions - 1)])
        inner = outer
    return stages


def dense_sizes(width: int, hidden: int, size: int, classes: int) -> list[tuple[int, int]]:
    """Return the input and output widths of each dense layer."""
    flat = STAGES[-1][0] * width * (size // 2 ** len(STAGES)) ** 2
    return [(flat, hidden), (hidden, hidden), (hidden, classes)]


def build_vgg11(
    *,
    seed: int = 0,
    batch: int = 1,
    size: int = 224,
    classes: int = 1000,
    width: int = 64,
    hidden: int = 4096,
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes).

    Args:
        seed: Of the weights.
        batch: Images.
        size: Of an image; a multiple of 32.
        classes: Of an image.
        width: Channels of the first convolution, of which the others' are multiples.
        hidden: Outputs of the first two dense layers.
    """
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = "x"
    for stage, convolutions in enumerate(stages_of(width), start=1):
        for number, channels in enumerate(convolutions):
            name = f"conv{stage}.{number}"
            y = graph.relu(graph.conv(y, channels, name, kernel=3, pad=1, gain=2.0), f"{name}.relu")
        y = graph.max_pool(y, 2, 2, f"pool{stage}")
    y = graph.like("Flatten", [y], "flatten", axis=1)
    *inner, last = dense_sizes(width, hidden, size, classes)
    for number, sizes in enumerate(inner):
        y = graph.relu(graph.gemm(y, sizes, f"fc{number}"), f"fc{number}.relu")
    graph.gemm(y, last, "logits")
    return graph.to_model("vgg11", batch=batch, size=size, classes=classes)
