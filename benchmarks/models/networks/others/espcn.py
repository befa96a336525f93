"""ESPCN for three times the size, seeded random weights: convolutions over the small image, then channels become pixels.

Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network",
2016, section 3.
"""

from __future__ import annotations

import numpy as np
import onnx
from benchmarks.models.networks.graph import Graph, mean_square

LAYERS = ((5, 64), (3, 32))  # kernel, channels
LAST_KERNEL = 3


def build_espcn(*, seed: int = 0, batch: int = 1, size: int = 160, times: int = 3) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 1, size, size), output ``y`` (batch, 1, times · size, times · size)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y, inner = "x", 1
    for number, (kernel, outer) in enumerate(LAYERS):
        name = f"conv{number}"
        y = graph.conv(y, (inner, outer), name, kernel=kernel, pad=kernel // 2)
        moment = mean_square(np.tanh, graph.second_moment[y])
        y, inner = graph.node("Tanh", [y], f"{name}.tanh"), outer
        graph.second_moment[y] = moment
    y = graph.conv(y, (inner, times**2), "last", kernel=LAST_KERNEL, pad=LAST_KERNEL // 2)
    graph.node("DepthToSpace", [y], "y", blocksize=times, mode="CRD")
    wide = times * size
    return graph.finish("espcn", {"x": (batch, 1, size, size)}, {"y": (batch, 1, wide, wide)})
