"""EfficientNet-B0, seeded random weights: depthwise convolutions, squeeze-and-excite, x·sigmoid(x).

Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019, table 1.
"""

from __future__ import annotations

import onnx
from benchmarks.models.networks.graph import Graph

STAGES = (  # expansion, kernel, channels, blocks, stride of the first block
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
STEM_CHANNELS = 32
LAST_CHANNELS = 1280
SQUEEZE = 4  # of a block's input channels
OPEN_GATE = 0.27  # mean square of sigmoid(y), for the small y that a mean over the image leads to


def build_efficientnet_b0(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.swish(graph.conv_bn("x", (3, STEM_CHANNELS), 3, 2, "stem"), "stem.swish")
    inner = STEM_CHANNELS
    for stage, (expansion, kernel, outer, blocks, stride) in enumerate(STAGES, start=1):
        for number in range(blocks):
            first = stride if number == 0 else 1
            y = _block(graph, y, (inner, outer), expansion, kernel, first, f"stage{stage}.{number}")
            inner = outer
    y = graph.swish(graph.conv_bn(y, (inner, LAST_CHANNELS), 1, 1, "last"), "last.swish")
    graph.classifier(y, LAST_CHANNELS, classes)
    return graph.to_model("efficientnet_b0", batch=batch, size=size, classes=classes)


def _block(
    graph: Graph, x: str, channels: tuple[int, int], expansion: int, kernel: int, stride: int, name: str
) -> str:
    inner, outer = channels
    wide = inner * expansion
    y = x
    if expansion != 1:
        y = graph.swish(graph.conv_bn(x, (inner, wide), 1, 1, f"{name}.expand"), f"{name}.expand.swish")
    y = graph.conv_bn(y, (wide, wide), kernel, stride, f"{name}.depthwise", groups=wide)
    y = squeeze_and_excite(
        graph, graph.swish(y, f"{name}.depthwise.swish"), (wide, inner // SQUEEZE), f"{name}.se"
    )
    y = graph.conv_bn(y, (wide, outer), 1, 1, f"{name}.project")
    return graph.add(x, y, f"{name}.add") if (inner, stride) == (outer, 1) else y


def squeeze_and_excite(
    graph: Graph, x: str, channels: tuple[int, int], name: str, *, hard: bool = False
) -> str:
    """Scale each channel by two dense layers over the means of all channels.

    Args:
        graph: Gets the nodes.
        x: What is weighed.
        channels: Of x, and between the dense layers.
        name: Of the result.
        hard: ReLU and the hard sigmoid, as in MobileNetV3, in place of x·sigmoid(x) and the sigmoid.
    """
    wide, narrow = channels
    y = graph.like("GlobalAveragePool", [x], f"{name}.pool")
    y = graph.conv(y, (wide, narrow), f"{name}.reduce")
    y = graph.relu(y, f"{name}.relu") if hard else graph.swish(y, f"{name}.swish")
    y = graph.conv(y, (narrow, wide), f"{name}.widen")
    slope = {"alpha": 1.0 / 6.0} if hard else {}
    gate = graph.node("HardSigmoid" if hard else "Sigmoid", [y], f"{name}.gate", **slope)
    graph.second_moment[name] = OPEN_GATE * graph.second_moment[x]
    return graph.node("Mul", [x, gate], name)
