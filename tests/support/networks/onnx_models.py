"""Small ordinary ONNX networks, built node by node with seeded random weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64


class GraphBuilder:
    """Collects nodes and weights; `model` closes the graph. Every method returns tensor names.

    Args:
        seed: Of the random weights.
        prefix: Put before every node's and inner tensor's name.
    """

    def __init__(self, seed: int = 0, prefix: str = "") -> None:
        self._rng = np.random.default_rng(seed)
        self._prefix = prefix
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(
        self, tensor: str, shape: Sequence[int | str | None] | None = None, dtype: int = FLOAT
    ) -> None:
        self._outputs.append(helper.make_tensor_value_info(tensor, dtype, shape))

    def constant(self, value: NDArray[Any]) -> str:
        return self.tensor(numpy_helper.from_array(np.asarray(value, order="C")))

    def tensor(self, tensor: TensorProto) -> str:
        """Add a weight of any type; it is given a name."""
        tensor.name = f"{self._prefix}w{len(self._initializers)}"
        self._initializers.append(tensor)
        return tensor.name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def weight(self, *shape: int) -> str:
        """Add a random weight whose size keeps activations around one."""
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.constant((self._rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def node(
        self,
        operator: str,
        *inputs: str,
        out: str | None = None,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node; return its output's name, or a list of names where `outputs` is above one."""
        stem = f"{self._prefix}{operator.lower()}{len(self._nodes)}"
        names = [out or stem] if outputs == 1 else [f"{stem}_{i}" for i in range(outputs)]
        self._nodes.append(
            helper.make_node(operator, list(inputs), names, name=f"{stem}_node", domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names

    def conv(
        self,
        x: str,
        in_channels: int,
        out_channels: int,
        kernel: int = 3,
        stride: int = 1,
        group: int = 1,
        bias: bool = True,
    ) -> str:
        weights = [self.weight(out_channels, in_channels // group, kernel, kernel)]
        if bias:
            weights.append(self.weight(out_channels))
        name: str = self.node(
            "Conv",
            x,
            *weights,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=group,
        )
        return name

    def batch_norm(self, x: str, channels: int) -> str:
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        noise = self._rng.uniform(-0.1, 0.1, (4, channels)).astype(np.float32)
        weights = [
            self.constant(v) for v in (ones + noise[0], noise[1], zeros + noise[2], ones + np.abs(noise[3]))
        ]
        name: str = self.node("BatchNormalization", x, *weights)
        return name

    def linear(self, x: str, in_features: int, out_features: int) -> str:
        name: str = self.node(
            "Add", self.node("MatMul", x, self.weight(in_features, out_features)), self.weight(out_features)
        )
        return name

    def graph(self, name: str = "net") -> onnx.GraphProto:
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._initializers)

    def model(self, opset: int = OPSET, **kwargs: Any) -> onnx.ModelProto:
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        if any(node.domain == "ai.onnx.ml" for node in self._nodes):
            imports.append(helper.make_opsetid("ai.onnx.ml", 1))
        return helper.make_model(self.graph(), opset_imports=imports, ir_version=8, **kwargs)


def residual_net(
    image: int = 32,
    widths: Sequence[int] = (8, 16),
    blocks: int = 1,
    classes: int = 10,
    batch: int | str = 1,
    seed: int = 0,
    prefix: str = "",
) -> onnx.ModelProto:
    """A ResNet of basic blocks; ``(224, (64, 128, 256, 512), 2, 1000)`` is ResNet-18's shape."""
    g = GraphBuilder(seed, prefix)
    x = g.input("image", [batch, 3, image, image])
    x = g.node("Relu", g.batch_norm(g.conv(x, 3, widths[0], kernel=7, stride=2, bias=False), widths[0]))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            skip = x
            y = g.node("Relu", g.batch_norm(g.conv(x, channels, width, stride=stride, bias=False), width))
            y = g.batch_norm(g.conv(y, width, width, bias=False), width)
            if stride != 1 or channels != width:
                skip = g.batch_norm(g.conv(x, channels, width, kernel=1, stride=stride, bias=False), width)
            x = g.node("Relu", g.node("Add", y, skip))
            channels = width
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    g.node("Gemm", x, g.weight(classes, channels), g.weight(classes), transB=1, out="logits")
    g.output("logits", [batch, classes])
    return g.model()


def mlp(
    batch: int | str = 1, features: Sequence[int] = (32, 64, 10), seed: int = 0, prefix: str = ""
) -> onnx.ModelProto:
    g = GraphBuilder(seed, prefix)
    x = g.input("x", [batch, features[0]])
    for i, (wide_in, wide_out) in enumerate(itertools.pairwise(features)):
        x = g.linear(x, wide_in, wide_out)
        if i < len(features) - 2:
            x = g.node("Relu", x)
    g.node("Softmax", x, axis=-1, out="probs")
    g.output("probs", [batch, features[-1]])
    return g.model()


def mobile_block(image: int = 16, channels: int = 8, seed: int = 0) -> onnx.ModelProto:
    """An inverted residual: expand, depthwise, project; clipped activations."""
    g = GraphBuilder(seed)
    x = g.input("image", [1, channels, image, image])
    limits = [g.constant(np.array(v, np.float32)) for v in (0.0, 6.0)]
    y = g.node("Clip", g.batch_norm(g.conv(x, channels, 4 * channels, kernel=1), 4 * channels), *limits)
    y = g.node(
        "Clip", g.batch_norm(g.conv(y, 4 * channels, 4 * channels, group=4 * channels), 4 * channels), *limits
    )
    y = g.batch_norm(g.conv(y, 4 * channels, channels, kernel=1), channels)
    g.node("Add", x, y, out="features")
    g.output("features", [1, channels, image, image])
    return g.model()


def squeeze_excite(image: int = 16, channels: int = 8, seed: int = 0) -> onnx.ModelProto:
    g = GraphBuilder(seed)
    x = g.input("image", [1, channels, image, image])
    y = g.node("HardSwish", g.conv(x, channels, channels))
    gate = g.node("ReduceMean", y, axes=[2, 3], keepdims=1)
    gate = g.node("Relu", g.conv(gate, channels, channels // 4, kernel=1))
    gate = g.node("HardSigmoid", g.conv(gate, channels // 4, channels, kernel=1))
    g.node("Mul", y, gate, out="features")
    g.output("features", [1, channels, image, image])
    return g.model()


def encoder_block(
    tokens: int = 8,
    width: int = 16,
    heads: int = 2,
    vocabulary: int = 50,
    batch: int | str = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """Token embedding (Gather), self-attention and a feed-forward layer, with layer norms."""
    g = GraphBuilder(seed)
    ids = g.input("ids", [batch, tokens], INT64)
    x = g.node("Gather", g.weight(vocabulary, width), ids)
    x = g.node("Add", x, g.weight(tokens, width))
    head_width = width // heads
    split = g.ints(0, tokens, heads, head_width)

    def head_view(tensor: str, perm: Sequence[int]) -> str:
        view: str = g.node("Transpose", g.node("Reshape", tensor, split), perm=list(perm))
        return view

    query = head_view(g.linear(x, width, width), (0, 2, 1, 3))
    key = head_view(g.linear(x, width, width), (0, 2, 3, 1))
    value = head_view(g.linear(x, width, width), (0, 2, 1, 3))
    scores = g.node(
        "Div", g.node("MatMul", query, key), g.constant(np.array(np.sqrt(head_width), np.float32))
    )
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    mixed = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), g.ints(0, tokens, width))
    x = g.node(
        "LayerNormalization",
        g.node("Add", x, g.linear(mixed, width, width)),
        g.weight(width),
        g.weight(width),
        axis=-1,
    )
    hidden = g.linear(x, width, 4 * width)
    half, unit = (g.constant(np.array(v, np.float32)) for v in (0.5, 1.0))
    erf = g.node("Erf", g.node("Div", hidden, g.constant(np.array(np.sqrt(2), np.float32))))
    hidden = g.node("Mul", g.node("Mul", hidden, half), g.node("Add", erf, unit))
    x = g.node("Add", x, g.linear(hidden, 4 * width, width))
    g.node("LayerNormalization", x, g.weight(width), g.weight(width), axis=-1, out="encoded")
    g.output("encoded", [batch, tokens, width])
    return g.model()


def conv_1d(length: int = 64, channels: int = 8, seed: int = 0) -> onnx.ModelProto:
    g = GraphBuilder(seed)
    x = g.input("signal", [1, 2, length])
    x = g.node("Conv", x, g.weight(channels, 2, 5), g.weight(channels), kernel_shape=[5], pads=[2, 2])
    x = g.node("MaxPool", g.node("Tanh", x), kernel_shape=[2], strides=[2])
    g.node("Conv", x, g.weight(channels, channels, 3), kernel_shape=[3], dilations=[2], out="features")
    g.output("features", [1, channels, length // 2 - 4])
    return g.model()


def u_net(image: int = 16, channels: int = 4, seed: int = 0) -> onnx.ModelProto:
    """Down, up twice (once ConvTranspose, once Resize), with skips by Concat."""
    g = GraphBuilder(seed)
    x = g.input("image", [1, 1, image, image])
    top = g.node("Relu", g.conv(x, 1, channels))
    middle = g.node(
        "Relu", g.conv(g.node("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), channels, 2 * channels)
    )
    bottom = g.node(
        "Relu",
        g.conv(
            g.node("AveragePool", middle, kernel_shape=[2, 2], strides=[2, 2]), 2 * channels, 4 * channels
        ),
    )
    up = g.node(
        "ConvTranspose",
        bottom,
        g.weight(4 * channels, 2 * channels, 2, 2),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    up = g.node("Relu", g.conv(g.node("Concat", up, middle, axis=1), 4 * channels, 2 * channels))
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    up = g.node(
        "Resize",
        up,
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    up = g.node("Concat", up, top, axis=1)
    g.node("Sigmoid", g.conv(up, 3 * channels, 1, kernel=1), out="mask")
    g.output("mask", [1, 1, image, image])
    return g.model()


def two_by_two(batch: int | str = 2, seed: int = 0) -> onnx.ModelProto:
    """Two inputs (float and int64), two outputs (float and bool)."""
    g = GraphBuilder(seed)
    left = g.input("left", [batch, 6])
    right = g.input("right.ids:0", [batch, 6], INT64)
    total = g.node("Add", g.linear(left, 6, 6), g.node("Cast", right, to=FLOAT))
    g.node("Sqrt", g.node("Abs", total), out="root")
    g.node("Greater", total, g.constant(np.array(0, np.float32)), out="above/zero")
    g.output("root", [batch, 6])
    g.output("above/zero", [batch, 6], TensorProto.BOOL)
    return g.model()


def branching(seed: int = 0) -> onnx.ModelProto:
    """An `If` whose branches read an outer tensor."""
    g = GraphBuilder(seed)
    x = g.input("x", [1, 8])
    flag = g.input("flag", [], TensorProto.BOOL)
    branches = {}
    for name, operator in (("then_branch", "Relu"), ("else_branch", "Neg")):
        inner = GraphBuilder(seed, prefix=name)
        inner.node(operator, x, out=f"{name}_out")
        inner.output(f"{name}_out", [1, 8])
        branches[name] = inner.graph(name)
    g.node("Exp", g.node("If", flag, **branches), out="y")
    g.output("y", [1, 8])
    return g.model()


ORDINARY: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual_net": residual_net,
    "mlp": mlp,
    "mobile_block": mobile_block,
    "squeeze_excite": squeeze_excite,
    "encoder_block": encoder_block,
    "conv_1d": conv_1d,
    "u_net": u_net,
    "two_by_two": two_by_two,
    "batched": lambda: residual_net(batch=4),
}
