"""Operators without a float64 kernel in ONNX Runtime, written with operators that have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shapes = dict[str, tuple[int, ...]]
Rewrite = Callable[[onnx.NodeProto, Mapping[str, tuple[int, ...]], int], "list[onnx.NodeProto] | None"]
"""Returns the nodes that compute the same; None if the node's form is not covered (its shapes are not known)."""


_LARGEST_WINDOWS_BYTES = 1 << 28
"""Bytes of a convolution's windows side by side, above which it stays float32."""


class _Nodes:
    """Nodes under construction, whose values have names that begin with an output's name."""

    def __init__(self, prefix: str, opset: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._prefix = prefix
        self._opset = opset

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        name = output or f"{self._prefix} in float64 {len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(values, dtype)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        return self.add("Reshape", [value, self.constant(shape, np.int64)])

    def pad(self, value: str, pads: Sequence[int]) -> str:
        if not any(pads):
            return value
        if self._opset < 11:
            return self.add("Pad", [value], pads=list(pads))
        return self.add("Pad", [value, self.constant(pads, np.int64)])

    def unsqueeze(self, value: str, axis: int) -> str:
        if self._opset < 13:
            return self.add("Unsqueeze", [value], axes=[axis])
        return self.add("Unsqueeze", [value, self.constant([axis], np.int64)])

    def mean(self, value: str, axes: Sequence[int], output: str = "") -> str:
        if self._opset < 18:
            return self.add("ReduceMean", [value], output, axes=list(axes), keepdims=1)
        return self.add("ReduceMean", [value, self.constant(axes, np.int64)], output, keepdims=1)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _convolution(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    """Write a convolution as a product of its weights and the windows of its input, gathered side by side."""
    data, weight = shapes.get(node.input[0]), shapes.get(node.input[1])
    if data is None or weight is None or len(data) < 3 or 0 in data:
        return None
    attributes = _attributes(node)
    window, rank = weight[2:], len(weight) - 2
    strides = list(attributes.get("strides") or [1] * rank)
    dilations = list(attributes.get("dilations") or [1] * rank)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=True)]
    pads = _pads(attributes, data[2:], spans, strides)
    padded = [size + pads[axis] + pads[rank + axis] for axis, size in enumerate(data[2:])]
    sizes = [(size - span) // stride + 1 for size, span, stride in zip(padded, spans, strides, strict=True)]
    groups, batch, channels, results = attributes.get("group", 1), data[0], data[1], weight[0]
    if min(sizes) < 1 or 8 * batch * channels * prod(sizes) * prod(window) > _LARGEST_WINDOWS_BYTES:
        return None
    build = _Nodes(node.output[0], opset)
    windows = build.pad(node.input[0], [0, 0, *pads[:rank], 0, 0, *pads[rank:]])
    for axis in reversed(range(rank)):
        starts = np.arange(sizes[axis]) * strides[axis]
        within = np.arange(window[axis]) * dilations[axis]
        if window[axis] > 1 or strides[axis] > 1:
            indices = build.constant(within[:, None] + starts[None, :], np.int64)
            windows = build.add("Gather", [windows, indices], axis=2 + axis)
        else:
            windows = build.unsqueeze(windows, 2 + axis)
    # Now (batch, channel, window, size, window, size, ...): the sizes go last.
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2)]
    if rank > 1:
        windows = build.add("Transpose", [windows], perm=order)
    columns = build.reshape(windows, [batch, groups, channels // groups * prod(window), prod(sizes)])
    rows = build.reshape(node.input[1], [groups, results // groups, channels // groups * prod(window)])
    total = build.add("MatMul", [rows, columns])
    if len(node.input) > 2 and node.input[2]:
        bias = build.reshape(node.input[2], [1, groups, results // groups, 1])
        total = build.add("Add", [total, bias])
    build.add("Reshape", [total, build.constant([batch, results, *sizes], np.int64)], node.output[0])
    return build.nodes


def _pads(
    attributes: Mapping[str, Any], sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> list[int]:
    rank = len(sizes)
    kind = (attributes.get("auto_pad") or b"NOTSET").decode()
    if kind == "NOTSET":
        return list(attributes.get("pads") or [0] * (2 * rank))
    if kind == "VALID":
        return [0] * (2 * rank)
    totals = [
        max(0, (ceil(size / stride) - 1) * stride + span - size)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return [*less, *more] if kind == "SAME_UPPER" else [*more, *less]


def _global_average(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    shape = shapes.get(node.input[0])
    if shape is None:
        return None
    build = _Nodes(node.output[0], opset)
    build.mean(node.input[0], range(2, len(shape)), node.output[0])
    return build.nodes


def _leaky(
    node: onnx.NodeProto, _shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    """Write LeakyRelu and PRelu as max(x, 0) + slope * min(x, 0)."""
    if opset < 8:
        return None
    build = _Nodes(node.output[0], opset)
    if node.op_type == "PRelu":
        slope = node.input[1]
    else:
        slope = build.constant(np.float32(_attributes(node).get("alpha", 0.01)))
    zero = build.constant(0.0)
    above = build.add("Max", [node.input[0], zero])
    below = build.add("Mul", [slope, build.add("Min", [node.input[0], zero])])
    build.add("Add", [above, below], node.output[0])
    return build.nodes


def _hard_sigmoid(
    node: onnx.NodeProto, _shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    if opset < 8:
        return None
    attributes = _attributes(node)
    build = _Nodes(node.output[0], opset)
    slope = build.constant(np.float32(attributes.get("alpha", 0.2)))
    offset = build.constant(np.float32(attributes.get("beta", 0.5)))
    line = build.add("Add", [build.add("Mul", [slope, node.input[0]]), offset])
    positive = build.add("Max", [line, build.constant(0.0)])
    build.add("Min", [positive, build.constant(1.0)], node.output[0])
    return build.nodes


def _instance_normalization(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    shape = shapes.get(node.input[0])
    if shape is None or opset < 8:
        return None
    build = _Nodes(node.output[0], opset)
    axes, column = range(2, len(shape)), [1, -1, *[1] * (len(shape) - 2)]
    centred = build.add("Sub", [node.input[0], build.mean(node.input[0], axes)])
    variance = build.mean(build.add("Mul", [centred, centred]), axes)
    epsilon = build.constant(np.float32(_attributes(node).get("epsilon", 1e-5)))
    deviation = build.add("Sqrt", [build.add("Add", [variance, epsilon])])
    scaled = build.add("Mul", [build.add("Div", [centred, deviation]), build.reshape(node.input[1], column)])
    build.add("Add", [scaled, build.reshape(node.input[2], column)], node.output[0])
    return build.nodes


def _hard_swish(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    gate = f"{node.output[0]} as a gate"
    inner = helper.make_node("HardSigmoid", list(node.input), [gate], alpha=1 / 6, beta=0.5)
    nodes = _hard_sigmoid(inner, shapes, opset)
    return nodes and [*nodes, helper.make_node("Mul", [node.input[0], gate], list(node.output))]


def _sigmoid(
    node: onnx.NodeProto, _shapes: Mapping[str, tuple[int, ...]], opset: int
) -> list[onnx.NodeProto] | None:
    if opset < 7:  # Add and Div do not repeat numbers
        return None
    build = _Nodes(node.output[0], opset)
    unit = build.constant(1.0)
    power = build.add("Exp", [build.add("Neg", [node.input[0]])])
    build.add("Div", [unit, build.add("Add", [unit, power])], node.output[0])
    return build.nodes


INEXACT = frozenset({"Sigmoid"})
"""Operators of which ONNX Runtime has a float64 kernel that is not as exact as float64: its sigmoid is 0 below -37."""

REWRITES: Mapping[str, Rewrite] = {
    "Conv": _convolution,
    "GlobalAveragePool": _global_average,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "InstanceNormalization": _instance_normalization,
    "LeakyRelu": _leaky,
    "PRelu": _leaky,
    "Sigmoid": _sigmoid,
}
"""What writes an operator with others, by its name. To add one, write it above and register it here."""
