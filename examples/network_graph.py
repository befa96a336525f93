"""Collect ONNX nodes and weights, for the scripts that write the larger networks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8


class Graph:
    """Collects nodes and weights; every method returns the name of the tensor that it made.

    `second_moment` follows E[x²] of each tensor, so that batch norm gets the variance it would have learned. All
    methods draw from one generator: the order of calls is part of what a seed means.
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

    def conv_bn(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int,
        name: str,
        *,
        groups: int = 1,
        dilation: int = 1,
    ) -> str:
        """Convolution without bias, then batch norm."""
        inner, outer = channels
        fan_in = inner // groups * kernel * kernel
        w = self.rng.normal(0.0, np.sqrt(2.0 / fan_in), (outer, inner // groups, kernel, kernel))
        pad = dilation * (kernel // 2)
        special: dict[str, object] = {"group": groups} if groups > 1 else {}
        if dilation > 1:
            special["dilations"] = [dilation, dilation]
        conv = self.node(
            "Conv",
            [x, self.weight(f"{name}.weight", w)],
            f"{name}.conv",
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad, pad, pad, pad],
            **special,
        )
        self.second_moment[conv] = 2.0 * self.second_moment[x]
        return self.batch_norm(conv, outer, name)

    def batch_norm(self, x: str, channels: int, name: str) -> str:
        variance = self.second_moment[x]
        scale = self.rng.uniform(0.6, 1.0, channels)
        shift = self.rng.normal(0.0, 0.1, channels)
        bn = self.node(
            "BatchNormalization",
            [
                x,
                self.weight(f"{name}.scale", scale),
                self.weight(f"{name}.shift", shift),
                self.weight(f"{name}.mean", self.rng.normal(0.0, 0.1 * np.sqrt(variance), channels)),
                self.weight(f"{name}.var", variance * self.rng.uniform(0.8, 1.25, channels)),
            ],
            f"{name}.bn",
            epsilon=1e-5,
        )
        self.second_moment[bn] = float(np.mean(scale**2) + np.mean(shift**2))
        return bn

    def relu(self, x: str, name: str) -> str:
        self.second_moment[name] = self.second_moment[x] / 2.0
        return self.node("Relu", [x], name)

    def relu6(self, x: str, name: str) -> str:
        """ReLU that ends at 6."""
        limits = [weight.name for weight in self.weights if weight.name in ("zero", "six")]
        if not limits:
            limits = [self.weight("zero", np.array(0.0)), self.weight("six", np.array(6.0))]
        self.second_moment[name] = self.second_moment[x] / 2.0
        return self.node("Clip", [x, *limits], name)

    def max_pool(self, x: str, kernel: int, stride: int, name: str, *, pad: int = 0) -> str:
        """Largest of each window; of nine, the second moment is about doubled."""
        self.second_moment[name] = 2.0 * self.second_moment[x]
        window, pads = [kernel, kernel], [pad, pad, pad, pad]
        return self.node("MaxPool", [x], name, kernel_shape=window, strides=[stride, stride], pads=pads)

    def add(self, x: str, y: str, name: str) -> str:
        self.second_moment[name] = self.second_moment[x] + self.second_moment[y]
        return self.node("Add", [x, y], name)

    def classifier(self, x: str, channels: int, classes: int) -> str:
        """Average over the image, then a dense layer: ends in ``logits``."""
        y = self.node("GlobalAveragePool", [x], "pool")
        y = self.node("Flatten", [y], "flatten", axis=1)
        w = self.rng.normal(0.0, np.sqrt(2.0 / channels), (classes, channels))
        bias = self.rng.normal(0.0, 0.1, classes)
        return self.node(
            "Gemm", [y, self.weight("fc.weight", w), self.weight("fc.bias", bias)], "logits", transB=1
        )

    def to_model(self, name: str, *, batch: int, size: int, classes: int) -> onnx.ModelProto:
        """Return the model: input ``x`` of shape (batch, 3, size, size), output ``logits`` (batch, classes)."""
        return self.finish(name, {"x": (batch, 3, size, size)}, {"logits": (batch, classes)})

    def finish(
        self,
        name: str,
        inputs: Mapping[str, Sequence[int]],
        outputs: Mapping[str, Sequence[int]],
        *,
        input_type: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        """Return the model; inputs and outputs are float32, by name. `input_type` is an ONNX type, where it is another."""
        model = helper.make_model(
            helper.make_graph(
                self.nodes,
                name,
                [helper.make_tensor_value_info(x, input_type, shape) for x, shape in inputs.items()],
                [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape) for y, shape in outputs.items()],
                self.weights,
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="tunefarm-examples",
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model)
        return model


def write_network(model: onnx.ModelProto, path: Path | str) -> Path:
    """Write a model to a file; return its path."""
    path = Path(path)
    path.write_bytes(model.SerializeToString())
    return path


def run_command(build: Callable[..., onnx.ModelProto], title: str) -> None:
    """Write a network as the command line says.

    Args:
        build: Makes it of ``seed``, ``batch``, ``size`` and ``classes``.
        title: The network's name, for people.
    """
    parser = argparse.ArgumentParser(
        description=f"Write {title} as an ONNX file, with seeded random weights."
    )
    parser.add_argument("output", type=Path, metavar="OUT.onnx")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--classes", type=int, default=1000)
    args = parser.parse_args()
    model = build(seed=args.seed, batch=args.batch, size=args.size, classes=args.classes)
    write_network(model, args.output)
    print(f"{args.output}: {title}, {args.output.stat().st_size / 1e6:.1f} MB")
