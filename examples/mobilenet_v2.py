"""Write MobileNetV2 as an ONNX file: the graph of the paper (width 1), seeded random weights.

Usage::

    python examples/mobilenet_v2.py mobilenet_v2.onnx [--seed 0] [--batch 1] [--size 224] [--classes 1000]

No network is needed. The weights are random but well scaled, as those of `resnet18.py`.

Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018, table 2.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from network_graph import Graph, run_command, write_network

STAGES = (  # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM_CHANNELS = 32
LAST_CHANNELS = 1280


def inverted_residual(
    graph: Graph,
    x: str,
    channels: tuple[int, int],
    expansion: int,
    stride: int,
    name: str,
    *,
    dilation: int = 1,
) -> str:
    """Widen by a 1×1 convolution, filter each channel by itself, narrow by another 1×1 without a ReLU."""
    inner, outer = channels
    wide = inner * expansion
    y = x
    if expansion != 1:
        y = graph.relu6(graph.conv_bn(x, (inner, wide), 1, 1, f"{name}.expand"), f"{name}.expand.relu")
    y = graph.conv_bn(y, (wide, wide), 3, stride, f"{name}.depthwise", groups=wide, dilation=dilation)
    y = graph.conv_bn(graph.relu6(y, f"{name}.depthwise.relu"), (wide, outer), 1, 1, f"{name}.project")
    return graph.add(x, y, f"{name}.add") if (inner, stride) == (outer, 1) else y


def build_mobilenet_v2(
    *, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu6(graph.conv_bn("x", (3, STEM_CHANNELS), 3, 2, "stem"), "stem.relu")
    inner = STEM_CHANNELS
    for stage, (expansion, outer, blocks, stride) in enumerate(STAGES, start=1):
        for number in range(blocks):
            name = f"stage{stage}.{number}"
            y = inverted_residual(graph, y, (inner, outer), expansion, stride if number == 0 else 1, name)
            inner = outer
    y = graph.relu6(graph.conv_bn(y, (inner, LAST_CHANNELS), 1, 1, "last"), "last.relu")
    graph.classifier(y, LAST_CHANNELS, classes)
    return graph.to_model("mobilenet_v2", batch=batch, size=size, classes=classes)


def write_mobilenet_v2(path: Path | str, *, seed: int = 0) -> Path:
    """Write the standard model (1×3×224×224, 1000 classes, 14 MB) to `path`."""
    return write_network(build_mobilenet_v2(seed=seed), path)


def main() -> None:
    run_command(build_mobilenet_v2, "MobileNetV2")


if __name__ == "__main__":
    main()
