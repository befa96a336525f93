"""Read a node of control flow: its inner graphs, its numbers, and the inputs that decide it, for errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import FlatGraph

Inline = Callable[[onnx.GraphProto, Sequence[str]], list[str]]
"""Adds the nodes of an inner graph with the tensors that are its inputs; returns the names of its outputs."""


def inner_graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """Return a graph among a node's attributes.

    Raises:
        InvalidModelError: invalid-onnx.
    """
    for attribute in node.attribute:
        if attribute.name == name and attribute.HasField("g"):
            return attribute.g
    raise InvalidModelError(f"{describe(node)} has no {name}", code="invalid-onnx", node=clean(node.name, 60))


def int_attribute(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    """Return a whole number among a node's attributes."""
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)


def ints_attribute(node: onnx.NodeProto, name: str, count: int) -> list[int]:
    """Return a list of whole numbers among a node's attributes; zeros if it is left out or of another length."""
    numbers = next((list(attribute.ints) for attribute in node.attribute if attribute.name == name), [])
    return numbers if len(numbers) == count else [0] * count


def describe(node: onnx.NodeProto) -> str:
    """Return a node's operator and name, for errors."""
    name = clean(node.name, 100) or clean(next(iter(node.output), ""), 100)
    return f"{clean(node.op_type, 60)} (node '{name}')"


def proposed_value(flat: FlatGraph, tensor: str, always: str) -> str:
    """Return how to bind the inputs that decide a tensor, as a sentence's end; empty if there are none that could be bound.

    Args:
        flat: The graph.
        tensor: The tensor's name.
        always: What the artifact then always does.
    """
    names = [
        name
        for name in flat.deciding_inputs(tensor)
        if (shape := flat.shape(name)) is not None and len(shape) <= 1 and all(size == 1 for size in shape)
    ]
    if not names:
        return ""
    texts = []
    for name in names[:4]:
        number = flat.compared_constant(tensor, name)
        default = "true" if flat.element_type(name) == onnx.TensorProto.BOOL else "1"
        text = default if number is None else str(number).lower()
        texts.append(f"--value {clean(name, 60)}={text}")
    return f"; bind the inputs that decide it to values, for example: {' '.join(texts)} (the artifact then always {always})"
