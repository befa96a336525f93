"""A small U-Net, seeded random weights: pooling on the way down, a transposed convolution or `Resize` on the way up.

Source: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015, figure 1, with a quarter
of its channels or fewer, padding, and batch norm.
"""

from __future__ import annotations

import numpy as np
import onnx
from benchmarks.models.networks.graph import Graph

WIDTHS = (32, 64, 128, 256)


def build_unet(
    *, seed: int = 0, batch: int = 1, size: int = 128, classes: int = 2, resize: bool = False
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``mask`` (batch, classes, size, size).

    Args:
        seed: Of the weights.
        batch: Images.
        size: Of an image; a multiple of 8.
        classes: Of a pixel.
        resize: Widen by nearest neighbours and a 1×1 convolution, not by a transposed convolution.
    """
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y, inner = "x", 3
    skips = []
    for level, width in enumerate(WIDTHS):
        if level:
            skips.append(y)
            y = graph.max_pool(y, 2, 2, f"down{level}.pool")
        y, inner = _two_convs(graph, y, (inner, width), f"down{level}"), width
    for level, width in reversed(list(enumerate(WIDTHS[:-1]))):
        name = f"up{level}"
        y = (_resized if resize else _transposed)(graph, y, (inner, width), f"{name}.wide")
        skip = skips.pop()
        joined = graph.concat([(skip, width), (y, width)], f"{name}.joined")
        y, inner = _two_convs(graph, joined, (2 * width, width), name), width
    graph.node("Identity", [graph.conv(y, (inner, classes), "last")], "mask")
    name = "unet_resize" if resize else "unet"
    return graph.finish(name, {"x": (batch, 3, size, size)}, {"mask": (batch, classes, size, size)})


def _two_convs(graph: Graph, x: str, channels: tuple[int, int], name: str) -> str:
    y = graph.relu(graph.conv_bn(x, channels, 3, 1, f"{name}.0"), f"{name}.0.relu")
    return graph.relu(graph.conv_bn(y, (channels[1], channels[1]), 3, 1, f"{name}.1"), f"{name}.1.relu")


def _transposed(graph: Graph, x: str, channels: tuple[int, int], name: str) -> str:
    """2×2, stride 2: each input value gives four outputs, and no output mixes two inputs."""
    inner, outer = channels
    w = graph.weight(f"{name}.weight", graph.rng.normal(0.0, np.sqrt(1.0 / inner), (inner, outer, 2, 2)))
    bias = graph.weight(f"{name}.bias", graph.rng.normal(0.0, 0.1, outer))
    graph.second_moment[name] = graph.second_moment[x] + 0.01
    return graph.node("ConvTranspose", [x, w, bias], name, kernel_shape=[2, 2], strides=[2, 2])


def _resized(graph: Graph, x: str, channels: tuple[int, int], name: str) -> str:
    y = graph.like(
        "Resize",
        [x, "", graph.constant("double", [1.0, 1.0, 2.0, 2.0])],
        f"{name}.resize",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return graph.conv(y, channels, name)
