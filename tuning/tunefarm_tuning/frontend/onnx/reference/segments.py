"""Cut a network at tensors inside it, so that each segment is compared alone, on the reference's own values.

The node that makes a cut tensor gives an output of the network; the nodes that take it read a new input, which holds the
reference's value. So no segment passes its error on, and the first segment that differs is the one that is wrong.

A network that rounds its activations to integers is cut before and after each rounding: then a tie changes one integer, and all
that is computed from the integers is compared as closely as in a network that does not round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any, TypeVar

import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, shape_inference

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import dtype_name, real_inputs
from tunefarm_tuning.frontend.onnx.graph_reading import names_read
from tunefarm_tuning.frontend.onnx.reference.float64 import bind_shapes
from tunefarm_tuning.frontend.onnx.reference.moved import KEPT_BY_OPERATOR
from tunefarm_tuning.frontend.onnx.reference.rounding import COMPUTES_ON, FEEDS_BACK, is_rounding
from tunefarm_tuning.frontend.onnx.reference.scaled import WEIGHTED
from tunefarm_tuning.workload.task import TensorSpec

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
_OF_SHAPES = frozenset({"Shape", "Size"})
_MOST_CUTS = 96
_MOST_CUTS_AT_ROUNDINGS = 400
_MOST_BYTES = 256 << 20
_ELEMENT_BYTES = 8
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One output of a cut network.

    Attributes:
        tensor: The tensor's name in the network.
        node: The name of the node that makes it.
        operator: That node's operator.
    """

    tensor: str
    node: str
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedModel:
    """A network that was cut.

    Attributes:
        model: Its inputs are those of the network that it still needs, then the cut tensors.
        inputs: Names of its inputs.
        segments: By output, in the order in which the network computes.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    segments: tuple[Segment, ...]


class Rounding(Enum):
    """Where a segment of a network rounds values to integers."""

    AT_THE_END = "at the end, or nowhere: a tie moves one integer"
    FED_BACK = "in the steps of a recurrent layer at its end"
    COMPUTED_ON = "before its end: a tie moves all that is computed from it"


class Network:
    """A network with the types and shapes of its tensors.

    Args:
        model: The network; it stays as it is.
        specs: Its inputs with all sizes known.

    Raises:
        InvalidModelError: reference-failed, if its types cannot be inferred.
    """

    def __init__(self, model: onnx.ModelProto, specs: Sequence[TensorSpec]) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        bind_shapes(self.model, specs)
        try:
            inferred = shape_inference.infer_shapes(self.model, strict_mode=False, data_prop=True)
        except Exception as error:
            raise InvalidModelError("its types cannot be inferred", code="reference-failed") from error
        self.values: dict[str, onnx.ValueInfoProto] = {
            value.name: value
            for value in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
            if value.type.WhichOneof("value") == "tensor_type" and _is_known(value)
        }
        self.makers: dict[str, int] = {
            name: position
            for position, node in enumerate(self.model.graph.node)
            for name in node.output
            if name
        }
        self.inputs = [value.name for value in real_inputs(self.model.graph)]

    def candidates(self) -> list[str]:
        """Return the tensors that the network can be cut at, in order.

        They are floats, and what floats are rounded to; they depend on the network's inputs, and decide no shape.
        """
        moving = set(self.inputs)
        kept: set[str] = set()
        outputs = {value.name for value in self.model.graph.output}
        names = []
        for node in self.model.graph.node:
            if node.op_type in KEPT_BY_OPERATOR:
                kept.update(node.input[1:])
            if node.op_type in _OF_SHAPES or not moving & set(names_read(node)):
                continue
            moving.update(name for name in node.output if name)
            names += [
                name
                for name in node.output
                if name in self.values
                and name not in outputs
                and (self.values[name].type.tensor_type.elem_type in _FLOATS or is_rounding(node))
                and prod(_shape(self.values[name])) > 0
            ]
        return [name for name in names if name not in kept]

    def first_cuts(self) -> list[str]:
        """Return the tensors to cut at first, as many as fit.

        They are what is rounded and what it is rounded to; and results of layers with weights, else of any nodes.
        """
        candidates = self.candidates()
        weighted = [name for name in candidates if self._maker(name).op_type in WEIGHTED]
        groups = self._roundings(candidates)
        most = _MOST_CUTS_AT_ROUNDINGS if groups else _MOST_CUTS
        groups += [[name] for name in _spread(weighted or candidates, _MOST_CUTS)]
        cuts = {name for group in groups for name in group}
        while len(cuts) > most or self._bytes(cuts) > _MOST_BYTES:
            groups = _spread(groups, len(groups) // 2)
            cuts = {name for group in groups for name in group}
        return [name for name in candidates if name in cuts]

    def rounding_within(self, tensor: str, cuts: Collection[str]) -> Rounding:
        """Return what a segment rounds before the end of it, which is a tensor."""
        end = self.makers.get(tensor)
        nodes = self.model.graph.node
        before = self._positions(tensor, cuts) - {end}
        ends_with = "" if end is None else nodes[end].op_type
        if any(is_rounding(nodes[position]) for position in before):
            return Rounding.COMPUTED_ON
        if ends_with in FEEDS_BACK:
            return Rounding.FED_BACK
        return Rounding.COMPUTED_ON if ends_with in COMPUTES_ON else Rounding.AT_THE_END

    def untyped(self) -> list[str]:
        """Return the tensors to cut at whose types could not be inferred: around roundings, and results of layers with weights."""
        names = [
            name
            for node in self.model.graph.node
            for name in ([node.input[0]] if is_rounding(node) else [])
            + (list(node.output) if is_rounding(node) or node.op_type in WEIGHTED else [])
        ]
        return [name for name in names if name in self.makers and name not in self.values]

    def learn(self, name: str, array: NDArray[Any]) -> None:
        """Take the type of a tensor from its value."""
        elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.values[name] = helper.make_tensor_value_info(name, elem_type, list(array.shape))

    def _roundings(self, candidates: Collection[str]) -> list[list[str]]:
        """Return, for each node that rounds, the tensors to cut at around it."""
        there = set(candidates)
        return [
            names
            for node in self.model.graph.node
            if is_rounding(node)
            if (names := [name for name in (node.input[0], *node.output) if name in there])
        ]

    def inner_cuts(self, tensor: str, cuts: Collection[str]) -> list[str]:
        """Return the tensors between a tensor and the cuts before it, in order."""
        nodes = self.model.graph.node
        within = {read for position in self._positions(tensor, cuts) for read in names_read(nodes[position])}
        inner = [name for name in self.candidates() if name in within.difference(cuts)]
        while inner and self._bytes(inner) > _MOST_BYTES:
            inner = _spread(inner, len(inner) // 2)
        return inner

    def cut(self, cuts: Sequence[str], outputs: Sequence[str]) -> SegmentedModel:
        """Cut the network at tensors, and keep what computes some outputs: cut tensors, or outputs of the network."""
        twin = onnx.ModelProto()
        twin.CopyFrom(self.model)
        graph = twin.graph
        ends_as = {name: f"{name} as made" for name in cuts}
        nodes, needed = list(graph.node), set()
        waiting = [self.makers[name] for name in outputs if name in self.makers]
        read: set[str] = {name for name in outputs if name not in self.makers}
        while waiting:
            position = waiting.pop()
            if position in needed:
                continue
            needed.add(position)
            for name in names_read(nodes[position]):
                read.add(name)
                if name in self.makers and name not in ends_as:
                    waiting.append(self.makers[name])
        del graph.node[:]
        for position, node in enumerate(nodes):
            if position in needed:
                for index, name in enumerate(node.output):
                    node.output[index] = ends_as.get(name, name)
                graph.node.append(node)
        original = {value.name: value for value in graph.output}
        inputs = [name for name in self.inputs if name in read] + [name for name in cuts if name in read]
        weights = [value for value in graph.input if value.name not in self.inputs]
        kept_weights = [tensor for tensor in graph.initializer if tensor.name in read]
        values = [self.values[name] for name in inputs]
        ends = [
            _renamed(self.values[name], ends_as[name]) if name in ends_as else original[name]
            for name in outputs
        ]
        del graph.input[:], graph.output[:], graph.initializer[:]
        graph.input.extend([*values, *(value for value in weights if value.name in read)])
        graph.output.extend(ends)
        graph.initializer.extend(kept_weights)
        return SegmentedModel(
            model=twin, inputs=tuple(inputs), segments=tuple(self._segment(name) for name in outputs)
        )

    def _positions(self, tensor: str, cuts: Collection[str]) -> set[int]:
        """Return the positions of the nodes that compute a tensor from the cuts before it."""
        positions: set[int] = set()
        waiting = [tensor]
        while waiting:
            position = self.makers.get(waiting.pop())
            if position is not None and position not in positions:
                positions.add(position)
                waiting += [name for name in names_read(self.model.graph.node[position]) if name not in cuts]
        return positions

    def specs(self, names: Iterable[str]) -> list[TensorSpec]:
        """Return tensors' shapes and dtypes."""
        return [
            TensorSpec(
                name=name,
                shape=_shape(self.values[name]),
                dtype=dtype_name(self.values[name].type.tensor_type.elem_type) or "float32",
            )
            for name in names
        ]

    def with_outputs(self, names: Collection[str]) -> onnx.ModelProto:
        """Return the network with further tensors as its only outputs."""
        twin = onnx.ModelProto()
        twin.CopyFrom(self.model)
        del twin.graph.output[:]
        twin.graph.output.extend([self.values.get(name) or onnx.ValueInfoProto(name=name) for name in names])
        return twin

    def _maker(self, name: str) -> onnx.NodeProto:
        return self.model.graph.node[self.makers[name]]

    def _segment(self, name: str) -> Segment:
        if name not in self.makers:
            return Segment(tensor=name, node="", operator="")
        return Segment(tensor=name, node=self._maker(name).name, operator=self._maker(name).op_type)

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(_ELEMENT_BYTES * prod(_shape(self.values[name])) for name in names)


def _is_known(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _renamed(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, list(_shape(value)))


def _spread(items: Sequence[_Item], count: int) -> list[_Item]:
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]
