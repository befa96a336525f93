"""The body of a `Scan` whose steps do not depend on each other, rewritten to compute all of them at once along a first axis.

scikit-learn's exports compute distances so: a step for each sample of the training data, which are thousands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tunefarm_tuning.frontend.onnx.control_flow.inner_graphs import int_attribute
from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS

_UNARY = frozenset({
    "Abs", "Cast", "Ceil", "Erf", "Exp", "Floor", "Identity", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sqrt", "Tanh",
})  # fmt: skip
_BROADCASTING = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Or", "Pow", "Sub", "Where",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
})  # fmt: skip
_AXES_ARE_INPUT = 18
_AXES_ARE_INPUT_OF_SUM = 13


class _StepsDependError(Exception):
    """The body is not known to compute each step alone."""


def batched_body(
    body: onnx.GraphProto, ranks: Sequence[int | None], carried: int, opset: int
) -> onnx.GraphProto | None:
    """Return a body that takes sequences along their first axis in place of their rows, and returns the rows of all steps.

    Args:
        body: Of a `Scan`. The first `carried` inputs and outputs are its state.
        ranks: The number of dimensions of each input, in a step; None if it is not known.
        carried: How many tensors the state has.
        opset: Of ONNX's own operators.

    Returns:
        None if a step changes the state, or has other operators than those along elements and reductions.
    """
    try:
        return _Rewriting(body, ranks, carried, opset).body()
    except _StepsDependError:
        return None


class _Rewriting:
    """Writes the nodes anew; for each tensor it knows the rank in a step, and whether it differs between steps."""

    def __init__(self, body: onnx.GraphProto, ranks: Sequence[int | None], carried: int, opset: int) -> None:
        self._old = body
        self._carried = carried
        self._opset = opset
        self._new = onnx.GraphProto()
        self._new.CopyFrom(body)
        del self._new.node[:]
        self._ranks: dict[str, int | None] = dict(
            zip((value.name for value in body.input), ranks, strict=True)
        )
        self._constants = {tensor.name: tensor for tensor in body.initializer}
        self._ranks.update((name, len(tensor.dims)) for name, tensor in self._constants.items())
        self._rows = {value.name for value in body.input[carried:]}

    def body(self) -> onnx.GraphProto:
        sources = {value.name: value.name for value in self._old.input[: self._carried]}
        for node in self._old.node:
            if node.op_type == "Identity" and node.input[0] in sources:
                sources[node.output[0]] = sources[node.input[0]]
            self._add(node)
        state = [value.name for value in self._old.input[: self._carried]]
        if [sources.get(value.name) for value in self._old.output[: self._carried]] != state:
            raise _StepsDependError
        if any(value.name not in self._rows for value in self._old.output[self._carried :]):
            raise _StepsDependError
        return self._new

    def _add(self, node: onnx.NodeProto) -> None:
        if node.domain not in ONNX_DOMAINS or len(node.output) != 1:
            raise _StepsDependError
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        output = node.output[0]
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            self._constants[output] = node.attribute[0].t
            self._ranks[output] = len(node.attribute[0].t.dims)
        elif node.op_type in _UNARY | _BROADCASTING:
            ranks = [self._rank(name) for name in node.input]
            self._ranks[output] = max(ranks)
            if self._rows.intersection(node.input):
                self._rows.add(output)
                copy.input[:] = [
                    self._aligned(name, max(ranks) - rank)
                    for name, rank in zip(node.input, ranks, strict=True)
                ]
        elif node.op_type in _REDUCTIONS:
            self._reduce(copy)
        else:
            raise _StepsDependError
        self._new.node.append(copy)

    def _rank(self, name: str) -> int:
        rank = self._ranks.get(name)
        if rank is None:  # a tensor around the scan, too
            raise _StepsDependError
        return rank

    def _aligned(self, name: str, missing: int) -> str:
        """Return a tensor with the dimensions, behind that of the steps, that broadcasting would put in front."""
        if name not in self._rows or not missing:
            return name
        return self._with_axes("Unsqueeze", name, list(range(1, 1 + missing)), _AXES_ARE_INPUT_OF_SUM)

    def _with_axes(self, operator: str, name: str, axes: list[int], input_from: int) -> str:
        output = f"{name}/{operator}/{len(self._new.node)}"
        node = helper.make_node(operator, [name], [output], name=output)
        self._set_axes(node, axes, input_from)
        self._new.node.append(node)
        return output

    def _set_axes(self, node: onnx.NodeProto, axes: list[int], input_from: int) -> None:
        if self._opset < input_from:
            node.attribute.append(helper.make_attribute("axes", axes))
            return
        name = f"{node.output[0]}/axes"
        self._new.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), name))
        node.input[:] = [node.input[0], name]

    def _reduce(self, node: onnx.NodeProto) -> None:
        """Move the axes of a reduction behind that of the steps."""
        rank = self._rank(node.input[0])
        axes = next((list(entry.ints) for entry in node.attribute if entry.name == "axes"), [])
        if len(node.input) > 1 and node.input[1]:
            if node.input[1] not in self._constants:
                raise _StepsDependError
            axes = numpy_helper.to_array(self._constants[node.input[1]]).reshape(-1).tolist()
        if int_attribute(node, "noop_with_empty_axes") and not axes:
            raise _StepsDependError
        if any(not -rank <= axis < rank for axis in axes):
            raise _StepsDependError
        over = {axis % rank for axis in axes} or set(range(rank))
        keeps = int_attribute(node, "keepdims", 1)
        self._ranks[node.output[0]] = rank if keeps else rank - len(over)
        if node.input[0] not in self._rows:
            return
        if not over:
            raise _StepsDependError
        self._rows.add(node.output[0])
        attributes = [entry for entry in node.attribute if entry.name != "axes"]
        del node.attribute[:]
        node.attribute.extend(attributes)
        since = _AXES_ARE_INPUT_OF_SUM if node.op_type == "ReduceSum" else _AXES_ARE_INPUT
        self._set_axes(node, [axis + 1 for axis in sorted(over)], since)
