"""Write single layers of many shapes as one ONNX file: the workloads that the prior is fitted on.

    python -m benchmarks.prior.layers layers.onnx

Shapes are of the kind that vision and language networks have, and none of them is a layer of a network under `examples/`:
a benchmark must not measure what the prior was fitted on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# (height = width, channels in, channels out, stride), windows of 3 x 3
CONVOLUTIONS = (
    (48, 40, 40, 1),
    (32, 96, 96, 1),
    (24, 80, 160, 2),
    (20, 192, 192, 1),
    (64, 32, 48, 1),
    (40, 48, 96, 1),
    (10, 320, 320, 1),
    (12, 384, 384, 1),
    (9, 448, 512, 1),
    (96, 16, 32, 2),
    (112, 24, 24, 1),
    (60, 64, 80, 1),
    (30, 160, 160, 2),
    (28, 112, 112, 1),
    (14, 224, 224, 1),
    (7, 384, 384, 1),
    (8, 256, 512, 1),
    (36, 128, 64, 1),
    (18, 256, 128, 1),
    (56, 48, 48, 1),
    (16, 288, 288, 1),
)
# (height = width, channels in, channels out, stride, activation), windows of 1 x 1
POINTWISE = (
    (48, 24, 96, 1, "Clip"),
    (40, 32, 192, 1, "Clip"),
    (20, 96, 24, 1, None),
    (24, 288, 72, 1, None),
    (12, 480, 80, 1, None),
    (16, 64, 256, 1, "Relu"),
    (32, 256, 128, 2, "Relu"),
    (10, 640, 160, 1, None),
    (7, 672, 128, 1, None),
    (28, 128, 256, 1, "Relu"),
    (14, 512, 192, 1, "Relu"),
    (56, 24, 128, 1, "Relu"),
    (64, 96, 24, 1, None),
    (8, 1024, 512, 1, "Sigmoid"),
    (18, 192, 768, 1, "Sigmoid"),
    (96, 16, 96, 1, "Clip"),
    (7, 512, 1024, 1, "Relu"),
)
# (height = width, channels, window, stride)
DEPTHWISE = (
    (96, 48, 3, 1),
    (80, 72, 3, 2),
    (48, 120, 3, 1),
    (40, 240, 5, 2),
    (24, 192, 3, 1),
    (20, 320, 3, 2),
    (16, 480, 5, 1),
    (10, 672, 3, 1),
    (8, 768, 3, 1),
)
# (rows, in, out, activation)
DENSE = (
    (1, 768, 500, None),
    (1, 1536, 1000, None),
    (1, 256, 2048, "Relu"),
    (8, 640, 320, None),
    (16, 1024, 512, "Relu"),
    (4, 2048, 512, None),
)
# (batch, rows, in, out, activation)
MATMULS = (
    (1, 96, 384, 384, None),
    (1, 160, 512, 512, None),
    (1, 64, 256, 1024, "Relu"),
    (1, 192, 1024, 256, None),
    (1, 80, 640, 640, None),
    (1, 256, 320, 960, "Relu"),
)
# (batch, rows, in, columns): both sides are inputs
BATCH_MATMULS = ((8, 96, 48, 96), (6, 160, 64, 160), (10, 80, 80, 64))


class Layers:
    """Collects unconnected layers; each has inputs and an output of its own."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._rng = np.random.default_rng(7)
        self._count = 0

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _input(self, *shape: int) -> str:
        name = self._name("in")
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def _constant(self, values: np.ndarray) -> str:
        name = self._name("w")
        self._weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def _weight(self, *shape: int) -> str:
        return self._constant(self._rng.normal(0, 0.1, shape))

    def _node(self, kind: str, inputs: list[str], **attributes: object) -> str:
        name = self._name("t")
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def _end(self, name: str, activation: str | None) -> None:
        if activation == "Clip":
            name = self._node("Clip", [name, self._constant(np.array(0.0)), self._constant(np.array(6.0))])
        elif activation == "Sigmoid":
            name = self._node("Mul", [name, self._node("Sigmoid", [name])])
        elif activation is not None:
            name = self._node(activation, [name])
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def convolution(
        self,
        size: int,
        channels: tuple[int, int],
        window: int,
        stride: int,
        *,
        groups: int = 1,
        activation: str | None = "Relu",
        residual: bool = False,
    ) -> None:
        inner, outer = channels
        pad = window // 2
        inputs = [
            self._input(1, inner, size, size),
            self._weight(outer, inner // groups, window, window),
            self._weight(outer),
        ]
        name = self._node(
            "Conv",
            inputs,
            kernel_shape=[window, window],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )
        if residual:
            out = (size + 2 * pad - window) // stride + 1
            name = self._node("Add", [name, self._input(1, outer, out, out)])
        self._end(name, activation)

    def dense(self, rows: int, inner: int, outer: int, activation: str | None) -> None:
        inputs = [self._input(rows, inner), self._weight(outer, inner), self._weight(outer)]
        self._end(self._node("Gemm", inputs, transB=1), activation)

    def matmul(self, batch: int, rows: int, inner: int, outer: int, activation: str | None) -> None:
        product = self._node("MatMul", [self._input(batch, rows, inner), self._weight(inner, outer)])
        self._end(self._node("Add", [product, self._weight(outer)]), activation)

    def batch_matmul(self, batch: int, rows: int, inner: int, columns: int) -> None:
        sides = [self._input(batch, rows, inner), self._input(batch, inner, columns)]
        self._end(self._node("MatMul", sides), None)

    def save(self, path: Path) -> None:
        graph = helper.make_graph(self._nodes, "layers", self._inputs, self._outputs, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path)


def write(path: Path) -> None:
    """Write the file."""
    layers = Layers()
    for size, inner, outer, stride in CONVOLUTIONS:
        layers.convolution(size, (inner, outer), 3, stride, residual=size % 3 == 0 and stride == 1)
    layers.convolution(160, (3, 32), 7, 2)
    layers.convolution(128, (3, 16), 3, 2, activation="Clip")
    layers.convolution(192, (3, 48), 3, 2)
    layers.convolution(20, (64, 64), 5, 1)
    for size, inner, outer, stride, activation in POINTWISE:
        layers.convolution(size, (inner, outer), 1, stride, activation=activation)
    for size, channels, window, stride in DEPTHWISE:
        layers.convolution(size, (channels, channels), window, stride, groups=channels, activation="Clip")
    for dense in DENSE:
        layers.dense(*dense)
    for matmul in MATMULS:
        layers.matmul(*matmul)
    for product in BATCH_MATMULS:
        layers.batch_matmul(*product)
    layers.save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    write(parser.parse_args().output)
