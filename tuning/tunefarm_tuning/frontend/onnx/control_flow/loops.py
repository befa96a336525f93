"""`Loop`: its steps one after the other, if their number is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.numpy_helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import MAX_NODES, FlatGraph
from tunefarm_tuning.frontend.onnx.control_flow.inner_graphs import (
    Inline,
    describe,
    inner_graph,
    proposed_value,
)

MAX_STEPS = 1_000_000
"""Maximum number of steps of a loop that only counts, also if ONNX Runtime runs it: they take some seconds there."""


def unroll_loop(flat: FlatGraph, node: onnx.NodeProto, inputs: Sequence[str], inline: Inline) -> list[str]:
    """Add the steps of a `Loop` to `flat`; return the names of its results.

    Raises:
        InvalidModelError: unknown-loop, too-large, too-many-steps, zero-size or invalid-onnx.
    """
    body = inner_graph(node, "body")
    trips, condition, *carried = [*inputs, "", ""][: max(2, len(inputs))]
    if len(body.output) < 1 + len(carried):
        raise InvalidModelError(
            f"{describe(node)} carries {len(carried)} tensors, but its body returns {len(body.output)} with the condition",
            code="invalid-onnx",
        )
    limit = _known(flat, node, trips, "number of steps") if trips else None
    goes_on = bool(_known(flat, node, condition, "condition")) if condition else True
    if goes_on and (not condition or _keeps_condition(body)):
        _refuse_too_many_steps(node, limit)
        refuse_long(node, limit or 0, len(body.node))
    collected: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while goes_on and (limit is None or step < limit):
        refuse_long(node, step, 1)
        number = flat.add_constant(_as_declared(body, 0, np.int64(step)), f"{node.name}/step")
        going = flat.add_constant(_as_declared(body, 1, np.bool_(True)), f"{node.name}/condition")
        still, *results = inline(body, [number, going, *carried])
        carried, rows = results[: len(carried)], results[len(carried) :]
        for row, names in zip(rows, collected, strict=True):
            names.append(row)
        step += 1
        if condition and (limit is None or step < limit):
            goes_on = bool(_known(flat, node, still, f"condition after step {step}"))
    return [*carried, *(stack(flat, node, names, 0) for names in collected)]


def _as_declared(body: onnx.GraphProto, index: int, value: np.generic) -> np.ndarray:
    """Return a step's number or condition as the body declares it: a scalar, or a tensor of one element, as tf2onnx writes it."""
    declared = body.input[index].type.tensor_type.shape.dim if len(body.input) > index else ()
    return np.asarray(value).reshape((1,) * min(len(declared), 1))


def _keeps_condition(body: onnx.GraphProto) -> bool:
    """Return whether a step of a `Loop` leaves a true condition true, as that of a loop which only counts does."""
    producers = {name: node for node in body.node for name in node.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    name = body.output[0].name
    for _ in body.node:
        node = producers.get(name)
        if node is None or node.op_type not in ("Cast", "Identity", "Constant"):
            break
        if node.op_type == "Constant":
            constants.update((name, attribute.t) for attribute in node.attribute if attribute.name == "value")
            break
        name = node.input[0]
    if name in constants:
        return bool(onnx.numpy_helper.to_array(constants[name]).all())
    return len(body.input) > 1 and name == body.input[1].name


def _refuse_too_many_steps(node: onnx.NodeProto, steps: int | None) -> None:
    """Refuse a loop that only counts, and counts too far for anybody to run it; None is for ever.

    Raises:
        InvalidModelError: too-many-steps.
    """
    if steps is None or steps > MAX_STEPS:
        taken = f"takes {steps} steps" if steps is not None else "never ends"
        raise InvalidModelError(
            f"{describe(node)} {taken}; the limit of steps is {MAX_STEPS}: bind a smaller number, or correct the model",
            code="too-many-steps",
            operator=node.op_type,
            node=clean(node.name, 100),
            limit_steps=MAX_STEPS,
            **({"steps": steps} if steps is not None else {}),
        )


def refuse_long(node: onnx.NodeProto, steps: int, nodes: int) -> None:
    """Refuse a loop that has too many nodes unrolled.

    Raises:
        InvalidModelError: too-large.
    """
    if steps * max(nodes, 1) > MAX_NODES:
        raise InvalidModelError(
            f"{describe(node)} takes {steps} steps of {nodes} nodes, which unrolled are more than {MAX_NODES} nodes; use "
            "fewer steps (a shorter input), or cut the model before the loop",
            code="too-large",
            operator=node.op_type,
            node=clean(node.name, 100),
            limit_nodes=MAX_NODES,
        )


def stack(flat: FlatGraph, node: onnx.NodeProto, names: Sequence[str], axis: int) -> str:
    """Add the tensor of the rows that a loop made, one per step; return its name.

    Raises:
        InvalidModelError: zero-size, if there was no step.
    """
    if not names:
        raise InvalidModelError(
            f"{describe(node)} takes no step, so that one of its results is empty: there is nothing to compute",
            code="zero-size",
            operator=node.op_type,
            node=clean(node.name, 100),
        )
    rows = []
    for name in names:
        if flat.opset < 13:
            rows.append(flat.make("Unsqueeze", [name], f"{name}/row", axes=[axis]))
        else:
            axes = flat.add_constant(np.array([axis], np.int64), f"{node.name}/axes")
            rows.append(flat.make("Unsqueeze", [name, axes], f"{name}/row"))
    return flat.make("Concat", rows, f"{node.name}/rows", axis=axis)


def _known(flat: FlatGraph, node: onnx.NodeProto, name: str, what: str) -> int:
    value = flat.value(name)
    if value is None or value.size != 1:
        hint = proposed_value(flat, name, "makes that many steps")
        raise InvalidModelError(
            f"the {what} of {describe(node)} is known at run time only, and only loops of known length can be unrolled"
            f"{hint or '; export the model with a fixed number of steps, or cut it before the loop'}",
            code="unknown-loop",
            operator=node.op_type,
            node=clean(node.name, 100),
        )
    return int(value.reshape(-1)[0])
