"""Indices that are known at import: TVM computes what depends on constants alone while it imports, and checks none of them.

A gather would read, and a scatter write, anywhere in the child's memory. `refuse_bad_indices` says what is wrong where indices and
sizes stand in the file; the rest is found by running the network in ONNX Runtime, which checks them. If the whole network did not run
there, `nodes_computed_at_import` is what has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, constant_tensors

_ALONG_AXIS = frozenset({"Gather", "GatherElements", "Scatter", "ScatterElements"})
_OF_POINTS = frozenset({"GatherND", "ScatterND"})
_WRITING = frozenset({"Scatter", "ScatterElements", "ScatterND"})
_SHAPES = frozenset({"Shape", "Size"})


class _Known(IntEnum):
    """What a tensor depends on."""

    CONSTANT = 0
    """On constants, and on shapes of inputs."""
    SHAPE = 1
    """On shapes of tensors inside the network besides."""
    VALUES = 2
    """On values of inputs."""


def refuse_bad_indices(graph: onnx.GraphProto) -> None:
    """Refuse constant indices out of the range of tensors whose sizes are known without running anything.

    Raises:
        InvalidModelError: index-out-of-range; ``node``, ``index``, ``extent`` say which.
    """
    tensors = dict(constant_tensors(graph))
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.input
    }
    shapes |= {name: list(tensor.dims) for name, tensor in tensors.items()}
    for node in graph.node:
        is_indexing = node.domain in ONNX_DOMAINS and node.op_type in _ALONG_AXIS | _OF_POINTS
        if is_indexing and len(node.input) > 1 and node.input[0] in shapes and node.input[1] in tensors:
            indices = _array(tensors[node.input[1]])
            if indices is not None:
                _check(node, shapes[node.input[0]], indices)


def _array(tensor: onnx.TensorProto) -> NDArray[Any] | None:
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except Exception:  # noqa: BLE001  (ONNX's checker says what is wrong with it)
        return None
    return array if array.dtype.kind in "iu" and array.size else None


def _check(node: onnx.NodeProto, shape: Sequence[int], indices: NDArray[Any]) -> None:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type in _ALONG_AXIS:
        axis = attributes.get("axis", 0)
        if -len(shape) <= axis < len(shape):
            _check_extent(node, indices, shape[axis], f"axis {axis}")
        return
    first = attributes.get("batch_dims", 0)
    for position in range(indices.shape[-1] if indices.ndim else 0):
        axis = first + position
        if 0 <= axis < len(shape):
            _check_extent(node, indices[..., position], shape[axis], f"axis {axis}")


def _check_extent(node: onnx.NodeProto, indices: NDArray[Any], extent: int, axis: str) -> None:
    for index in (int(indices.min()), int(indices.max())):
        if not -extent <= index < extent:
            name = clean(node.name or next(iter(node.output), ""), 100)
            raise InvalidModelError(
                f"node '{name}' ({node.op_type}) has the constant index {index}, but {axis} of its tensor has {extent} elements: use "
                f"indices from {-extent} to {extent - 1}",
                code="index-out-of-range",
                operator=node.op_type,
                node=name,
                index=index,
                extent=extent,
            )


def nodes_computed_at_import(network: BoundNetwork) -> onnx.ModelProto | None:
    """Return the nodes that need no input's values, as a model; None if there are none.

    Raises:
        InvalidModelError: cannot-run, if a node writes at indices that are known at import, but only by the shapes of tensors inside.
    """
    graph = network.model.graph
    known = {tensor.name: _Known.CONSTANT for tensor in graph.initializer}
    known |= {tensor.values.name: _Known.CONSTANT for tensor in graph.sparse_initializer}
    inputs = {value.name for value in graph.input}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        depends = _depends(node, known, inputs)
        known.update(dict.fromkeys(node.output, depends))
        if depends is _Known.CONSTANT:
            nodes.append(node)
        elif depends is _Known.SHAPE and node.op_type in _WRITING:
            name = clean(node.name or next(iter(node.output), ""), 100)
            raise InvalidModelError(
                f"node '{name}' ({node.op_type}) writes at indices that follow from the network's shapes, and ONNX Runtime, which "
                "would check them, cannot run the network on inputs drawn at random: make them constants",
                code="cannot-run",
                operator=node.op_type,
                node=name,
            )
    if not nodes:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    ends = [name for node in nodes for name in node.output if name and name not in read]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ends)
    return model


def _depends(node: onnx.NodeProto, known: Mapping[str, _Known], inputs: set[str]) -> _Known:
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return _Known.VALUES  # control flow that is not resolved: ONNX Runtime's, not TVM's
    if node.op_type in _SHAPES:
        is_known = all(name in inputs or known.get(name) is _Known.CONSTANT for name in node.input)
        return _Known.CONSTANT if is_known else _Known.SHAPE
    return max((known.get(name, _Known.VALUES) for name in node.input if name), default=_Known.CONSTANT)
