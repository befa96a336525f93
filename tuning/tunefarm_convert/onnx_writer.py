"""Collecting the nodes and weights of an ONNX graph, under names of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_OPSET = 20
_OPSET_OF_16_BITS = 21
"""The first whose quantised operators take 16-bit integers. Elsewhere avoided: ONNX Runtime 1.31 cannot optimise two
roundings in a row in it."""
_OPSET_OF_BFLOAT16 = 22
"""The first whose convolutions and pools take it."""
_IR_VERSION = 10


class OnnxWriter:
    """Nodes in the order in which they were added. What no output needs is left out at the end.

    Args:
        graph: What the graph is called: after the format that it was in.
    """

    def __init__(self, graph: str = "tflite") -> None:
        self._graph = graph
        self._names: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, NDArray[Any]] = {}
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._opset = _OPSET
        self.place = "graph"

    def unique(self, wanted: str) -> str:
        """Return the name, or one like it that is not taken, and take it."""
        name, number = wanted or "tensor", 2
        while name in self._names:
            name, number = f"{wanted or 'tensor'}__{number}", number + 1
        self._names.add(name)
        return name

    def weight(self, array: NDArray[Any], wanted: str = "constant") -> str:
        """Add an initializer. Equal small ones are one."""
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size <= 16 else None
        if key is not None and key in self._small:
            return self._small[key]
        name = self.unique(wanted)
        self._weights[name] = array
        if key is not None:
            self._small[key] = name
        return name

    def need_16_bits(self) -> None:
        """Say that a quantised operator has 16-bit integers."""
        self._opset = max(self._opset, _OPSET_OF_16_BITS)

    def need_bfloat16(self) -> None:
        """Say that an operator computes in bfloat16."""
        self._opset = max(self._opset, _OPSET_OF_BFLOAT16)

    def ints(self, values: Sequence[int]) -> str:
        return self.weight(np.array(values, np.int64))

    def node(self, operator: str, inputs: Sequence[str], wanted: str = "", **attributes: Any) -> str:
        """Add a node of one output."""
        return self.nodes(operator, inputs, [wanted or f"{self.place}_{operator}"], **attributes)[0]

    def nodes(
        self, operator: str, inputs: Sequence[str], wanted: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs."""
        outputs = [self.unique(one) for one in wanted]
        name = self.unique(f"{self.place}/{operator}")
        self._nodes.append(helper.make_node(operator, inputs, outputs, name=name, **attributes))
        return outputs

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Mapping[str, onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """Close the graph. `outputs` by the tensors that they are, in order."""
        nodes = list(self._nodes)
        renamed: dict[str, str] = {}
        produced = {name for node in nodes for name in node.output}
        for tensor, value in outputs.items():
            if tensor in produced:
                renamed[tensor] = value.name
            else:  # an input or a weight that comes out as it is
                nodes.append(helper.make_node("Identity", [tensor], [value.name]))
        for node in nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        wanted = {value.name for value in outputs.values()}
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
        graph = helper.make_graph(kept[::-1], self._graph, list(inputs), list(outputs.values()), weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)])
        model.ir_version = _IR_VERSION
        model.producer_name = "tunefarm"
        return model
