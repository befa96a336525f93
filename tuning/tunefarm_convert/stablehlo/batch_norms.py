"""Replace written-out batch norms after convolutions by ONNX's operator, which tunefarm merges into the weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_FIELDS = {"Sub": "mean", "Mul": "scale", "Add": "shift"}


@dataclass(slots=True)
class _Norm:
    """The nodes of a batch norm and its constants per channel: a mean to subtract, then a scale, then a shift."""

    nodes: list[onnx.NodeProto]
    values: dict[str, NDArray[Any]]


def with_batch_norms(model: onnx.ModelProto) -> None:
    """Replace ``(convolution - mean) * scale + shift``, with constants per channel, by BatchNormalization.

    The mean or the shift may be missing.
    """
    graph = model.graph
    weights = {item.name: item for item in graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = Counter(value.name for value in graph.output)
    replaced: dict[str, onnx.NodeProto] = {}
    gone: set[str] = set()
    for node in graph.node:
        if node.op_type != "Conv" or len(node.input) != 2 or node.input[1] not in weights:
            continue
        channels = weights[node.input[1]].dims[0]
        rank = len(weights[node.input[1]].dims)
        norm = _norm(node.output[0], readers, outputs, weights, channels, rank)
        if "scale" not in norm.values or len(norm.nodes) < 2:
            continue
        dtype = norm.values["scale"].dtype
        parameters = []
        for field, otherwise in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1)):
            name = f"{node.name}/{field}"
            value = norm.values.get(field, np.full(channels, otherwise, dtype))
            graph.initializer.append(numpy_helper.from_array(value, name))
            parameters.append(name)
        last = norm.nodes[-1]
        replaced[last.name] = helper.make_node(
            "BatchNormalization",
            [node.output[0], *parameters],
            [last.output[0]],
            name=f"{node.name}/BatchNormalization",
            epsilon=0.0,
        )
        gone.update(item.name for item in norm.nodes[:-1])
    if not replaced:
        return
    kept = [replaced.get(node.name, node) for node in graph.node if node.name not in gone]
    used = {name for node in kept for name in node.input}
    still_used = [item for item in graph.initializer if item.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(still_used)


def _norm(
    tensor: str,
    readers: dict[str, list[onnx.NodeProto]],
    outputs: Counter[str],
    weights: dict[str, onnx.TensorProto],
    channels: int,
    rank: int,
) -> _Norm:
    """Return the longest chain of nodes after a tensor that forms such a batch norm."""
    norm = _Norm([], {})
    order = list(_FIELDS)
    while len(readers.get(tensor, [])) == 1 and not outputs[tensor]:
        (node,) = readers[tensor]
        if node.op_type not in order:
            break
        others = [name for name in node.input if name != tensor]
        if len(others) != 1 or (node.op_type == "Sub" and node.input[0] != tensor):
            break
        value = _per_channel(weights.get(others[0]), channels, rank)
        if value is None:
            break
        del order[: order.index(node.op_type) + 1]
        norm.nodes.append(node)
        norm.values[_FIELDS[node.op_type]] = value
        tensor = node.output[0]
    return norm


def _per_channel(weight: onnx.TensorProto | None, channels: int, rank: int) -> NDArray[Any] | None:
    if weight is None or list(weight.dims) != [1, channels, *[1] * (rank - 2)]:
        return None
    value = np.asarray(numpy_helper.to_array(weight)).reshape(channels)
    return value if value.dtype.kind == "f" else None  # not bfloat16
