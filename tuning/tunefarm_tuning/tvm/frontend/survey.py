"""Survey a network: import each of its nodes by itself, and note which cannot be compiled, and why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.core.untrusted_text import clean, clean_message
from tunefarm_tuning.frontend.onnx.binding import dtype_name
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork
from tunefarm_tuning.frontend.onnx.graph_reading import constant_nodes, names_read, opsets_of, weights_of
from tunefarm_tuning.frontend.onnx.parts.plan import DEPENDS, Survey
from tunefarm_tuning.frontend.onnx.parts.value_types import TypeInference, is_fixed, open_spec, tensor_type
from tunefarm_tuning.frontend.onnx.rules import why_not_compiled
from tunefarm_tuning.frontend.onnx.sanitize import sanitize_model
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.frontend.converters.runtime_part import call_part
from tunefarm_tuning.tvm.frontend.importer import NetworkImporter, with_domains
from tunefarm_tuning.tvm.frontend.node_context import constant_value, fixed_shape
from tunefarm_tuning.workload.runtime_part import NotCompiled

_READS = "reads a weight that is sparse, or of another dtype than numbers"
_MAKES = "makes a tensor whose size depends on values"


def survey_model(network: BoundNetwork) -> Survey:
    """Import every node of a network, and return what was found. The network is not changed."""
    model = network.model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    own_names = [node.name for node in model.graph.node]
    sanitize_model(copy)
    renamed = _old_names(model, copy)
    declared = {value.name: value.type for value in (*model.graph.value_info, *model.graph.output)}
    importer = _Surveyor(
        copy, own_names, {new: declared[old] for new, old in renamed.items() if old in declared}
    )
    opset = opsets_of(copy).get("", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importer.from_onnx(_without_strange_tensors(copy.graph), opset)
    return Survey(
        reasons=importer.reasons,
        types={renamed.get(name, name): kind for name, kind in importer.types.items()},
    )


class _Surveyor(NetworkImporter):
    """Imports what it can; what it cannot is replaced by calls of functions that do not exist.

    Args:
        model: The model, with names of ours.
        own_names: The nodes' own names.
        declared: What the file says of values' types, by their new names.

    Attributes:
        reasons: Why a node cannot be compiled, by its position.
        types: The types of values by name.
    """

    def __init__(
        self, model: onnx.ModelProto, own_names: Sequence[str], declared: Mapping[str, onnx.TypeProto]
    ) -> None:
        super().__init__()
        self._own_names = own_names
        self._declared = declared
        self._inference = TypeInference(model)
        self._constants = constant_nodes(model.graph)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._strange = weights_of(model.graph) - weights_of(_without_strange_tensors(model.graph))
        self._outputs = [value.name for value in model.graph.output]
        self.reasons: dict[int, NotCompiled] = {}
        self.types: dict[str, onnx.TypeProto | None] = {value.name: value.type for value in model.graph.input}

    def _construct_nodes(self, graph: Any) -> None:
        for position, node in enumerate(graph.node):
            reason = self._import_node(node)
            if reason:
                self.at = None
                self.reasons[position] = NotCompiled(
                    operator=clean(node.op_type.removeprefix("ai.onnx."), 60),
                    node=f"'{clean(own, 100)}'"
                    if (own := self._own_names[position])
                    else f"number {position}",
                    reason=reason,
                )
                self._replace(position, node)
        for name in self._outputs:  # so that the importer can end; nobody uses its module
            self._nodes.setdefault(name, relax.const(0.0))

    def _import_node(self, node: onnx.NodeProto) -> str:
        """Import a node; return why it cannot be compiled, empty if it can."""
        if why := why_not_compiled(node):
            return why
        if any(name not in self._nodes for name in names_read(node)):
            return _READS if self._strange.intersection(names_read(node)) else DEPENDS
        domain, operator = node.domain, node.op_type
        with_domains([node])
        try:
            super()._construct_nodes(SimpleNamespace(node=[node]))
        except Exception as error:  # noqa: BLE001  (TVM's converters raise anything; the node is then ONNX Runtime's)
            raise_if_out_of_memory(error)
            return f"cannot be compiled: {clean_message(error, 160)}"
        finally:
            node.domain, node.op_type = domain, operator
        types = {name: _type_of(self._nodes[name]) for name in node.output if name in self._nodes}
        if any(_is_open(self._nodes[name]) for name in types):
            for name in types:
                del self._nodes[name]
            return _MAKES
        self.types |= types
        return ""

    def _replace(self, position: int, node: onnx.NodeProto) -> None:
        """Infer the types of a node's results, and let later nodes read those of a fixed shape."""
        types = self._inference.of_node(node, self.types, self._known(node))
        # What the file says counts where nobody can infer it: the artifact checks what its parts return.
        types |= {
            name: self._declared[name]
            for name in node.output
            if name in self._declared and open_spec(name, types.get(name)) is None
        }
        self.types |= types
        for name in node.output:
            self._nodes.pop(name, None)
            if name and is_fixed(kind := types.get(name)) and position not in self._constants:
                spec = open_spec(name, kind)
                assert spec is not None
                self._nodes[name] = self.bb.emit(call_part(position, [], [spec]))

    def _known(self, node: onnx.NodeProto) -> dict[str, NDArray[Any] | onnx.TensorProto]:
        """Return the constants among what a node reads."""
        known: dict[str, NDArray[Any] | onnx.TensorProto] = {}
        for name in names_read(node):
            value = self._nodes.get(name)
            if name in self._tensors:
                known[name] = self._tensors[name]
            elif isinstance(value, relax.ShapeExpr) and _is_static(value):
                known[name] = np.array([int(size) for size in value.values], np.int64)
            elif value is not None and (array := constant_value(value)) is not None:
                known[name] = array
        return known


def _without_strange_tensors(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return a graph without the weights that TVM does not read; the nodes that read them are then ONNX Runtime's."""
    if not graph.sparse_initializer and all(dtype_name(t.data_type) for t in graph.initializer):
        return graph
    result = onnx.GraphProto()
    result.CopyFrom(graph)
    del result.sparse_initializer[:]
    del result.initializer[:]
    result.initializer.extend(t for t in graph.initializer if dtype_name(t.data_type))
    return result


def _old_names(model: onnx.ModelProto, renamed: onnx.ModelProto) -> dict[str, str]:
    """Return the model's own names of values by the new ones: nodes have kept their order, and may have lost last outputs."""
    names = {new.name: old.name for old, new in zip(model.graph.output, renamed.graph.output, strict=True)}
    for old, new in zip(model.graph.node, renamed.graph.node, strict=True):
        names |= dict(zip(new.output, old.output, strict=False))
        names |= dict(zip(new.input, old.input, strict=True))
    return names


def _type_of(value: Any) -> onnx.TypeProto | None:
    shape = fixed_shape(value)
    if shape is not None:
        return tensor_type(str(value.ty.dtype.dtype), shape)
    if isinstance(getattr(value, "ty", None), relax.ShapeType):
        return tensor_type("int64", (int(value.ty.ndim),))
    return None


def _is_open(value: Any) -> bool:
    """Return whether a value is a tensor or a shape that is not known before the network runs."""
    kind = getattr(value, "ty", None)
    if isinstance(kind, tvm.ir.TupleType):
        return any(
            isinstance(field, relax.TensorType) and not _has_static_shape(field) for field in kind.fields
        )
    if isinstance(kind, relax.ShapeType):
        return not (isinstance(value, relax.ShapeExpr) and _is_static(value))
    return isinstance(kind, relax.TensorType) and not _has_static_shape(kind)


def _has_static_shape(kind: Any) -> bool:
    return isinstance(kind.shape, relax.ShapeExpr) and _is_static(kind.shape)


def _is_static(shape: Any) -> bool:
    return all(isinstance(size, tirx.IntImm) for size in shape.values)
