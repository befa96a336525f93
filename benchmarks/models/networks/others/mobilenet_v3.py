"""MobileNetV3-small, seeded random weights: depthwise convolutions, squeeze-and-excite and the hard forms of swish and sigmoid.

Source: Howard et al., "Searching for MobileNetV3", 2019, table 2; squeezed channels are multiples of 8, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from benchmarks.models.networks.efficientnet_b0 import squeeze_and_excite
from benchmarks.models.networks.graph import Graph, mean_square


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the table: `wide` channels between, `squeezed` in the weighing (0: none), hard swish or ReLU."""

    kernel: int
    wide: int
    outer: int
    squeezed: int
    hard_swish: bool
    stride: int


BLOCKS = (
    Block(3, 16, 16, 8, False, 2),
    Block(3, 72, 24, 0, False, 2),
    Block(3, 88, 24, 0, False, 1),
    Block(5, 96, 40, 24, True, 2),
    Block(5, 240, 40, 64, True, 1),
    Block(5, 240, 40, 64, True, 1),
    Block(5, 120, 48, 32, True, 1),
    Block(5, 144, 48, 40, True, 1),
    Block(5, 288, 96, 72, True, 2),
    Block(5, 576, 96, 144, True, 1),
    Block(5, 576, 96, 144, True, 1),
)
STEM_CHANNELS = 16
LAST_CHANNELS = 576
HIDDEN = 1024


def build_mobilenet_v3_small(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = _hard_swish(graph, graph.conv_bn("x", (3, STEM_CHANNELS), 3, 2, "stem"), "stem.swish")
    inner = STEM_CHANNELS
    for number, block in enumerate(BLOCKS):
        y, inner = _block(graph, y, inner, block, f"block{number}"), block.outer
    y = _hard_swish(graph, graph.conv_bn(y, (inner, LAST_CHANNELS), 1, 1, "last"), "last.swish")
    y = graph.like("GlobalAveragePool", [y], "pool")
    y = graph.like("Flatten", [y], "flatten", axis=1)
    y = _hard_swish(graph, graph.gemm(y, (LAST_CHANNELS, HIDDEN), "hidden"), "hidden.swish")
    graph.gemm(y, (HIDDEN, classes), "logits")
    return graph.to_model("mobilenet_v3_small", batch=batch, size=size, classes=classes)


def _block(graph: Graph, x: str, inner: int, block: Block, name: str) -> str:
    def activated(y: str, title: str) -> str:
        return _hard_swish(graph, y, title) if block.hard_swish else graph.relu(y, title)

    wide = block.wide
    y = x
    if wide != inner:
        y = activated(graph.conv_bn(x, (inner, wide), 1, 1, f"{name}.expand"), f"{name}.expand.act")
    y = graph.conv_bn(y, (wide, wide), block.kernel, block.stride, f"{name}.depthwise", groups=wide)
    y = activated(y, f"{name}.depthwise.act")
    if block.squeezed:
        y = squeeze_and_excite(graph, y, (wide, block.squeezed), f"{name}.se", hard=True)
    y = graph.conv_bn(y, (wide, block.outer), 1, 1, f"{name}.project")
    return graph.add(x, y, f"{name}.add") if (inner, block.stride) == (block.outer, 1) else y


def _hard_swish(graph: Graph, x: str, name: str) -> str:
    graph.second_moment[name] = mean_square(
        lambda v: v * np.clip(v + 3.0, 0.0, 6.0) / 6.0, graph.second_moment[x]
    )
    return graph.node("HardSwish", [x], name)
