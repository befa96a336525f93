"""Write ResNet-18 as an ONNX file: the graph of the paper, seeded random weights.

Usage::

    python examples/resnet18.py resnet18.onnx [--seed 0] [--batch 1] [--size 224] [--classes 1000]

No network is needed. The weights are random but well scaled (He initialisation, and batch-norm statistics that fit
them), so that the outputs depend on the input and neither vanish nor overflow, as those of a trained network do.

Source: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block; two blocks each


class Graph:
    """Collects nodes and weights; every method returns the name of the tensor that it made.

    `second_moment` follows E[x²] of each tensor, so that batch norm gets the variance it would have learned.
    """

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.second_moment: dict[str, float] = {}
        self.rng = np.random.default_rng(seed)

    def weight(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv_bn(self, x: str, channels: tuple[int, int], kernel: int, stride: int, name: str) -> str:
        """Convolution without bias, then batch norm."""
        inner, outer = channels
        fan_in = inner * kernel * kernel
        w = self.rng.normal(0.0, np.sqrt(2.0 / fan_in), (outer, inner, kernel, kernel))
        pad = kernel // 2
        conv = self.node(
            "Conv",
            [x, self.weight(f"{name}.weight", w)],
            f"{name}.conv",
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad, pad, pad, pad],
        )
        variance = 2.0 * self.second_moment[x]
        scale = self.rng.uniform(0.6, 1.0, outer)
        shift = self.rng.normal(0.0, 0.1, outer)
        bn = self.node(
            "BatchNormalization",
            [
                conv,
                self.weight(f"{name}.scale", scale),
                self.weight(f"{name}.shift", shift),
                self.weight(f"{name}.mean", self.rng.normal(0.0, 0.1 * np.sqrt(variance), outer)),
                self.weight(f"{name}.var", variance * self.rng.uniform(0.8, 1.25, outer)),
            ],
            f"{name}.bn",
            epsilon=1e-5,
        )
        self.second_moment[bn] = float(np.mean(scale**2) + np.mean(shift**2))
        return bn

    def relu(self, x: str, name: str) -> str:
        self.second_moment[name] = self.second_moment[x] / 2.0
        return self.node("Relu", [x], name)

    def block(self, x: str, channels: tuple[int, int], stride: int, name: str) -> str:
        """Two 3×3 convolutions and a shortcut; the shortcut is a 1×1 convolution where the shape changes."""
        inner, outer = channels
        y = self.relu(self.conv_bn(x, channels, 3, stride, f"{name}.0"), f"{name}.0.relu")
        y = self.conv_bn(y, (outer, outer), 3, 1, f"{name}.1")
        shortcut = (
            x if (inner, stride) == (outer, 1) else self.conv_bn(x, channels, 1, stride, f"{name}.down")
        )
        total = self.node("Add", [y, shortcut], f"{name}.add")
        self.second_moment[total] = self.second_moment[y] + self.second_moment[shortcut]
        return self.relu(total, f"{name}.relu")


def build_resnet18(*, seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
    graph = Graph(seed)
    graph.second_moment["x"] = 1.0
    y = graph.relu(graph.conv_bn("x", (3, 64), 7, 2, "stem"), "stem.relu")
    pool = graph.node("MaxPool", [y], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    graph.second_moment[pool] = 2.0 * graph.second_moment[y]  # the largest of nine is about that much bigger
    y, inner = pool, 64
    for stage, (outer, stride) in enumerate(STAGES, start=1):
        y = graph.block(y, (inner, outer), stride, f"layer{stage}.0")
        y = graph.block(y, (outer, outer), 1, f"layer{stage}.1")
        inner = outer
    y = graph.node("GlobalAveragePool", [y], "pool")
    y = graph.node("Flatten", [y], "flatten", axis=1)
    w = graph.rng.normal(0.0, np.sqrt(2.0 / inner), (classes, inner))
    bias = graph.rng.normal(0.0, 0.1, classes)
    graph.node(
        "Gemm",
        [y, graph.weight("fc.weight", w), graph.weight("fc.bias", bias)],
        "logits",
        transB=1,
    )
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "resnet18",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, size, size])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])],
            graph.weights,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="tunefarm-examples",
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model


def write_resnet18(path: Path | str, *, seed: int = 0) -> Path:
    """Write the standard model (1×3×224×224, 1000 classes, 47 MB) to `path`."""
    path = Path(path)
    path.write_bytes(build_resnet18(seed=seed).SerializeToString())
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write ResNet-18 as an ONNX file, with seeded random weights."
    )
    parser.add_argument("output", type=Path, metavar="OUT.onnx")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--classes", type=int, default=1000)
    args = parser.parse_args()
    model = build_resnet18(seed=args.seed, batch=args.batch, size=args.size, classes=args.classes)
    args.output.write_bytes(model.SerializeToString())
    print(f"{args.output}: ResNet-18, {args.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
