"""Build an ONNX graph node by node, with unique names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tunefarm_tuning.core.array_file import numpy_dtype

_OPSET = 20
_OPSET_OF_16_BITS = 21
"""The first opset whose quantised operators take 16-bit integers. It is used for these only: ONNX Runtime 1.31 cannot
optimise two roundings in a row in it."""
_OPSET_OF_BFLOAT16 = 22
"""The first opset whose convolutions and pools take bfloat16."""
_IR_VERSION = 10
_MOST_PARTS = 256
"""Parts of a joined tensor that are remembered."""


class OnnxWriter:
    """Collects nodes in the order in which they run. Nodes and weights that no output needs are left out at the end.

    Args:
        graph: The graph's name.

    Attributes:
        scope: Begins the names of the nodes that are added next.
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._names: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, NDArray[Any]] = {}
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._joined: dict[str, tuple[int, list[tuple[str, int]]]] = {}
        self._cuts: set[str] = set()
        self._opset = _OPSET
        self.scope = "graph"

    def unique(self, wanted: str) -> str:
        """Reserve a name and return it, with a number if it is taken."""
        name, number = wanted or "tensor", 2
        while name in self._names:
            name, number = f"{wanted or 'tensor'}__{number}", number + 1
        self._names.add(name)
        return name

    def weight(self, array: NDArray[Any], wanted: str = "constant") -> str:
        """Add an initializer and return its name. Small arrays that are equal share one."""
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size <= 16 else None
        if key is not None and key in self._small:
            return self._small[key]
        name = self.unique(wanted)
        self._weights[name] = array
        if key is not None:
            self._small[key] = name
        return name

    def need_16_bits(self) -> None:
        """Raise the opset to the first whose quantised operators take 16-bit integers."""
        self._opset = max(self._opset, _OPSET_OF_16_BITS)

    def need_bfloat16(self) -> None:
        """Raise the opset to the first whose operators take bfloat16."""
        self._opset = max(self._opset, _OPSET_OF_BFLOAT16)

    def ints(self, values: Sequence[int]) -> str:
        """Add a constant list of integers and return its name."""
        return self.weight(np.array(values, np.int64))

    def node(self, operator: str, inputs: Sequence[str], wanted: str = "", **attributes: Any) -> str:
        """Add a node of one output and return the output's name."""
        return self.nodes(operator, inputs, [wanted or f"{self.scope}_{operator}"], **attributes)[0]

    def nodes(
        self, operator: str, inputs: Sequence[str], wanted: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs and return their names."""
        outputs = [self.unique(name) for name in wanted]
        name = self.unique(f"{self.scope}/{operator}")
        self._nodes.append(helper.make_node(operator, inputs, outputs, name=name, **attributes))
        return outputs

    def concat(self, parts: Sequence[tuple[str, int]], axis: int) -> str:
        """Add a ``Concat`` of tensors, each with its size along the axis, and return its name."""
        flat: list[tuple[str, int]] = []
        inputs: list[str] = []
        for part, size in parts:
            inner_axis, inner = self._joined.get(part, (axis, [(part, size)]))
            inner = inner if inner_axis == axis else [(part, size)]
            flat += inner
            inputs += [name for name, _ in inner] if part in self._cuts else [part]
        name = self.node("Concat", inputs, axis=axis)
        if len(flat) <= _MOST_PARTS:
            self._joined[name] = (axis, flat)
        return name

    def cut(self, name: str, axis: int, start: int, count: int) -> str | None:
        """Return a part of a tensor that `concat` joined along this axis, from what it was joined of; None if it was not.

        A loop that fills a list writes each element so: it joins what is before it in the list, it, and what is behind. The last
        list would else be a slice of a slice of a slice.
        """
        joined_axis, parts = self._joined.get(name, (axis, []))
        if not parts or joined_axis != axis:
            return None
        taken: list[tuple[str, int]] = []
        begin = 0
        for part, size in parts:
            first, last = max(start, begin), min(start + count, begin + size)
            if first < last:
                taken.append((self._slice(part, axis, first - begin, last - begin, size), last - first))
            begin += size
        if len(taken) == 1:
            return taken[0][0]
        part = self.concat(taken, axis)
        self._cuts.add(part)
        return part

    def _slice(self, name: str, axis: int, start: int, end: int, size: int) -> str:
        if (start, end) == (0, size):
            return name
        return self.node("Slice", [name, *(self.ints([value]) for value in (start, end, axis, 1))])

    @property
    def num_nodes(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    def evaluate(self, names: Sequence[str], since: int) -> list[NDArray[Any]]:
        """Compute tensors that depend on weights and on the nodes after the first `since` only.

        Raises:
            Exception: Of any kind, if ONNX's reference implementation cannot compute them.
        """
        nodes = self._nodes[since:]
        used = {name for node in nodes for name in node.input} | set(names)
        weights = [
            numpy_helper.from_array(self._weights[name], name)
            for name in sorted(used)
            if name in self._weights
        ]
        results = [helper.make_value_info(self.unique("folded"), onnx.TypeProto()) for _ in names]
        copies = [
            helper.make_node("Identity", [name], [result.name])
            for name, result in zip(names, results, strict=True)
        ]
        graph = helper.make_graph([*nodes, *copies], "folded", [], results, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)])
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, {})]

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[tuple[str, onnx.ValueInfoProto]]
    ) -> onnx.ModelProto:
        """Finish the graph, given its inputs and its outputs in order, each output with its tensor."""
        nodes = list(self._nodes)
        renamed: dict[str, str] = {}
        produced = {name for node in nodes for name in node.output}
        for tensor, value in outputs:
            if tensor in produced and tensor not in renamed:
                renamed[tensor] = value.name
            else:  # an input, a weight or another output
                nodes.append(helper.make_node("Identity", [tensor], [value.name]))
        for node in nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        wanted = {value.name for _, value in outputs}
        kept: list[onnx.NodeProto] = []
        for node in reversed(nodes):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                kept.append(node)
        weights = [
            numpy_helper.from_array(np.asarray(array, order="C"), name)
            for name, array in self._weights.items()
            if name in wanted
        ]
        graph = helper.make_graph(
            kept[::-1], self._graph, list(inputs), [value for _, value in outputs], weights
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)])
        model.ir_version = _IR_VERSION
        model.producer_name = "tunefarm"
        return model


def onnx_type(dtype: str) -> int:
    """Return ONNX's number of a dtype: one of NumPy's names, or ``bfloat16``."""
    return int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def value_info(name: str, dtype: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    """Describe an input or an output."""
    return helper.make_tensor_value_info(name, onnx_type(dtype), list(shape))
