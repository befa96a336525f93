"""`FlatGraph`: a graph without inner graphs that is built node by node, with what is known of its tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.graph_reading import (
    ONNX_DOMAINS,
    all_graphs,
    domain_of,
    names_read,
    opsets_of,
)
from tunefarm_tuning.frontend.onnx.node_folding import MAX_ELEMENTS, fold_node

MAX_NODES = 20_000
"""Maximum number of nodes that are looked at to resolve a network's control flow: bounds the time and the unrolled size."""


class FlatGraph:
    """Nodes in the order of their computation, constants, and the types and values that are known without running it.

    Args:
        model: The bound network. Its graph is read; `replace_graph` changes it.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._opsets = opsets_of(model)
        self._nodes: list[onnx.NodeProto] = []
        self._producers: dict[str, onnx.NodeProto] = {}
        self._tensors: dict[str, TensorProto] = {}
        self._values: dict[str, NDArray[Any]] = {}
        self._types: dict[str, onnx.TypeProto] = {value.name: value.type for value in model.graph.input}
        self._inputs = frozenset(self._types)
        self._names = _all_names(model.graph)
        self._copies: Counter[str] = Counter()
        self._guarded: set[str] = set()
        self._work = 0
        for tensor in model.graph.initializer:
            self.add_tensor(tensor, tensor.name)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self._opsets.get("", 1)

    @property
    def size(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    def new_name(self, stem: str) -> str:
        """Return a name that nothing has yet."""
        name = stem
        while name in self._names:
            self._copies[stem] += 1
            name = f"{stem}/{self._copies[stem]}"
        self._names.add(name)
        return name

    def add_tensor(self, tensor: TensorProto, name: str) -> None:
        """Add a constant of the file under a name."""
        self._tensors[name] = tensor
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))

    def add_constant(self, array: NDArray[Any], stem: str) -> str:
        """Add a constant; return its name."""
        name = self.new_name(stem)
        self._set_value(name, array)
        return name

    def value(self, name: str) -> NDArray[Any] | None:
        """Return the value of a small constant; None of any other tensor."""
        if name not in self._values and name in self._tensors:
            if math.prod(self._tensors[name].dims) > MAX_ELEMENTS:
                return None
            self._values[name] = numpy_helper.to_array(self._tensors[name])
        return self._values.get(name)

    def element_type(self, name: str) -> int | None:
        """Return ONNX's element type of a tensor, or None if it is not known."""
        kind = self._types.get(name)
        return (
            kind.tensor_type.elem_type or None if kind is not None and kind.HasField("tensor_type") else None
        )

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor, or None if a dimension is not known."""
        kind = self._types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return (
            tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None
        )

    def rank(self, name: str) -> int | None:
        """Return the number of dimensions of a tensor, or None if it is not known."""
        kind = self._types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        return len(kind.tensor_type.shape.dim)

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node without inner graphs, or the constants that it makes.

        Raises:
            InvalidModelError: too-large.
        """
        self._work += 1
        if self._work > MAX_NODES:
            raise InvalidModelError(
                f"the network has more than {MAX_NODES} nodes after its loops are unrolled (the last was node "
                f"'{clean(node.name, 60)}', {clean(node.op_type, 60)}); use fewer steps, or cut the model before the loop",
                code="too-large",
                limit_nodes=MAX_NODES,
            )
        folded = self._folded(node)
        if folded is not None:
            for name, value in zip(node.output, folded, strict=True):
                if name:
                    self._set_value(name, value)
            return
        self._nodes.append(node)
        for name in node.output:
            self._producers[name] = node
        self._types.update(self._inferred(node))

    def checkpoint(self) -> tuple[int, int]:
        """Return where the graph stands now, for `back_to`."""
        return len(self._nodes), self._work

    def back_to(self, checkpoint: tuple[int, int]) -> None:
        """Drop the nodes that were added since a checkpoint, which no node after it may read."""
        size, self._work = checkpoint
        del self._nodes[size:]

    def keep(self, node: onnx.NodeProto) -> None:
        """Add a node with inner graphs as it is: it is not compiled."""
        self._nodes.append(node)
        for name in node.output:
            self._producers[name] = node

    def make(self, operator: str, inputs: Sequence[str], stem: str, **attributes: Any) -> str:
        """Add a node of ONNX's own operators with one output; return the output's name."""
        name = self.new_name(stem)
        self.add(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def deciding_inputs(self, name: str) -> list[str]:
        """Return the network's inputs that a tensor depends on, in their order."""
        ancestors = self._ancestors([name])
        return [value.name for value in self._model.graph.input if value.name in ancestors]

    def compared_constant(self, name: str, input_name: str) -> Any:
        """Return a number that an input is compared with on the way to a tensor; None if there is none."""
        for node in self._upstream(name):
            if (
                node.op_type in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
                and len(node.input) == 2
            ):
                for side, other in ((0, 1), (1, 0)):
                    value = self.value(node.input[other])
                    if (
                        value is not None
                        and value.size == 1
                        and input_name in self._ancestors([node.input[side]])
                    ):
                        return value.reshape(-1)[0].item()
        return None

    def nodes_from(self, start: int) -> list[onnx.NodeProto]:
        """Return the nodes that were added since `size` was `start`."""
        return self._nodes[start:]

    def guarded(self, name: str) -> str:
        """Note that a tensor holds divisors or indices that cannot fail; return its name."""
        self._guarded.add(name)
        return name

    def is_guarded(self, name: str) -> bool:
        """Return whether a tensor was noted as `guarded`."""
        return name in self._guarded

    def is_input(self, name: str) -> bool:
        """Return whether a tensor is an input of the network, perhaps in another shape or integer type."""
        while name in self._producers and self._producers[name].op_type in _KEEPS_VALUES:
            name = self._producers[name].input[0]
        return name in self._inputs

    def replace_graph(self, outputs: Sequence[str]) -> None:
        """Replace the model's graph by this one, less what none of its outputs needs.

        Args:
            outputs: The names here of the tensors that the model returns, in its order.
        """
        graph = self._model.graph
        for value, name in zip(graph.output, outputs, strict=True):
            if value.name != name:
                self._nodes.append(
                    helper.make_node("Identity", [name], [value.name], name=self.new_name(value.name))
                )
                self._producers[value.name] = self._nodes[-1]
        needed = self._ancestors([value.name for value in graph.output])
        del graph.node[:], graph.value_info[:]
        graph.node.extend(node for node in self._nodes if needed.intersection(node.output))
        tensors = [self._tensor(name) for name in (*self._tensors, *self._values) if name in needed]
        del graph.initializer[:]
        graph.initializer.extend({tensor.name: tensor for tensor in tensors}.values())

    def _set_value(self, name: str, array: NDArray[Any]) -> None:
        self._values[name] = array
        self._types[name] = helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )

    def _tensor(self, name: str) -> TensorProto:
        tensor = TensorProto()
        tensor.CopyFrom(
            self._tensors[name] if name in self._tensors else numpy_helper.from_array(self._values[name])
        )
        tensor.name = name
        return tensor

    def _folded(self, node: onnx.NodeProto) -> list[NDArray[Any]] | None:
        if node.domain not in ONNX_DOMAINS:
            return None
        if node.op_type in ("Shape", "Size") and len(node.input) == 1:
            shape = self.shape(node.input[0])
            if shape is None:
                return None
            if node.op_type == "Size":
                return [np.array(math.prod(shape), np.int64)]
            ends = {attribute.name: attribute.i for attribute in node.attribute}
            return [np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], np.int64)]
        values = [self.value(name) if name else None for name in node.input]
        if any(value is None and name for value, name in zip(values, node.input, strict=True)):
            return None
        return fold_node(node, values, self.opset)

    def _inferred(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        domain = domain_of(node.domain)
        names = [name for name in node.input if name]
        if any(name not in self._types for name in names):
            return {}
        data = {
            name: numpy_helper.from_array(value) for name in names if (value := self.value(name)) is not None
        }
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opsets.get(domain, 1), domain)
            return dict(
                onnx.shape_inference.infer_node_outputs(
                    schema,
                    node,
                    {name: self._types[name] for name in names},
                    data,
                    opset_imports=list(self._model.opset_import),
                    ir_version=self._model.ir_version,
                )
            )
        except Exception:  # noqa: BLE001  (an unknown operator, or a wrong node: ONNX Runtime says what is wrong)
            return {}

    def _ancestors(self, names: Sequence[str]) -> set[str]:
        """Return the names of all that tensors are computed of, theirs included."""
        seen: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name and name not in seen:
                seen.add(name)
                left += names_read(self._producers[name]) if name in self._producers else ()
        return seen

    def _upstream(self, name: str) -> list[onnx.NodeProto]:
        ancestors = self._ancestors([name])
        return [node for node in self._nodes if ancestors.intersection(node.output)]


_KEEPS_VALUES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def _all_names(graph: onnx.GraphProto) -> set[str]:
    names: set[str] = set()
    for subgraph in all_graphs(graph):
        names.update(value.name for value in (*subgraph.input, *subgraph.output))
        names.update(tensor.name for tensor in subgraph.initializer)
        for node in subgraph.node:
            names.update(node.output)
    return names
