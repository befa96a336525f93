"""Write ResNet-18 as an ONNX file: the graph of the paper, seeded random weights.

Usage::

    python examples/resnet18.py resnet18.onnx [--seed 0] [--batch 1] [--size 224] [--classes 1000]

No network is needed. The weights are random but well scaled (He initialisation, and batch-norm statistics that fit
them), so that the outputs depend on the input and neither vanish nor overflow, as those of a trained network do.

Source: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from network_graph import Graph, run_command, write_network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block; two blocks each


def _block(graph: Graph, x: str, channels: tuple[int, int], stride: int, name: str) -> str:
    """Two 3×3 convolutions and a shortcut; the shortcut is a 1×1 convolution where the shape changes."""
    inner, outer = channels
    y = graph.relu(graph.conv_bn(x, channels, 3, stride, f"{name}.0"), f"{name}.0.relu")
    y = graph.conv_bn(y, (outer, outer), 3, 1, f"{name}.1")
    shortcut = x if (inner, stride) == (outer, 1) else graph.conv_bn(x, channels, 1, stride, f"{name}.down")
    return graph.relu(graph.add(y, shortcut, f"{name}.add"), f"{name}.relu")


def build_resnet18(*, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, 64), 7, 2, "stem"), "stem.relu")
    y, inner = graph.max_pool(y, 3, 2, "stem.pool", pad=1), 64
    for stage, (outer, stride) in enumerate(STAGES, start=1):
        y = _block(graph, y, (inner, outer), stride, f"layer{stage}.0")
        y = _block(graph, y, (outer, outer), 1, f"layer{stage}.1")
        inner = outer
    graph.classifier(y, inner, classes)
    return graph.to_model("resnet18", batch=batch, size=size, classes=classes)


def write_resnet18(path: Path | str, *, seed: int = 0) -> Path:
    """Write the standard model (1×3×224×224, 1000 classes, 47 MB) to `path`."""
    return write_network(build_resnet18(seed=seed), path)


def main() -> None:
    run_command(build_resnet18, "ResNet-18")


if __name__ == "__main__":
    main()
