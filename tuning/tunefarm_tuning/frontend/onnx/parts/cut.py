"""Cut a graph: the network that is compiled, with one node for each part, and the parts as models of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np
import onnx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.graph_reading import constant_nodes, names_read, weights_of
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.sanitize import PART_DOMAIN, PART_OPERATOR, rename
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart


@dataclass(frozen=True, slots=True)
class CutModel:
    """A network in two: `compiled` has a node of `PART_OPERATOR` for each of `parts`, the bytes of complete models."""

    compiled: onnx.ModelProto
    parts: tuple[bytes, ...]


def crossings(graph: onnx.GraphProto, nodes: Sequence[Sequence[int]]) -> list[tuple[list[str], list[str]]]:
    """Return the names that each part takes and gives, in order; the positions of a part's nodes are in `nodes`."""
    constants = constant_nodes(graph)
    known = weights_of(graph) | {name for position in constants for name in graph.node[position].output}
    owner = {position: number for number, part in enumerate(nodes) for position in part}
    read_by: dict[str, set[int | None]] = {value.name: {None} for value in graph.output}
    for position, node in enumerate(graph.node):
        for name in names_read(node):
            read_by.setdefault(name, set()).add(owner.get(position))
    crossing = []
    for number, part in enumerate(nodes):
        results = [name for position in sorted(part) for name in graph.node[position].output if name]
        read = dict.fromkeys(name for position in sorted(part) for name in names_read(graph.node[position]))
        given = [name for name in results if read_by.get(name, set()) - {number}]
        crossing.append(([name for name in read if name not in {*results, *known}], given))
    return crossing


def cut(model: onnx.ModelProto, parts: Sequence[RuntimePart]) -> CutModel:
    """Cut a model by a plan that was made for it (`plan.plan_parts`). The model is not changed.

    Raises:
        InvalidModelError: other-model, if the plan is not one of this model.
    """
    graph = model.graph
    constants = constant_nodes(graph)
    owned = {position for part in parts for position in part.nodes}
    if owned & constants or not owned <= set(range(len(graph.node))):
        raise _other_model()
    nodes = [
        (node, names_read(node))
        for position, node in enumerate(graph.node)
        if position not in owned | constants
    ]
    for number, (part, (taken, given)) in enumerate(
        zip(parts, crossings(graph, [part.nodes for part in parts]), strict=True)
    ):
        if taken != _names(part.inputs) or given != _names(part.outputs):
            raise _other_model()
        results = json.dumps([[output.dtype, output.shape] for output in part.outputs])
        node = onnx.helper.make_node(
            PART_OPERATOR, taken, given, domain=PART_DOMAIN, number=number, results=results
        )
        nodes.append((node, taken))
    compiled = onnx.ModelProto(ir_version=model.ir_version)
    compiled.opset_import.extend(model.opset_import)
    compiled.graph.name = graph.name
    compiled.graph.input.extend(graph.input)
    compiled.graph.output.extend(graph.output)
    outputs = [value.name for value in graph.output]
    _fill(compiled.graph, graph, constants, _in_order(nodes), outputs)
    return CutModel(compiled, tuple(onnx_bytes(_part_model(model, constants, part)) for part in parts))


def _part_model(model: onnx.ModelProto, constants: set[int], part: RuntimePart) -> onnx.ModelProto:
    """Return a part as a model: with its weights, typed inputs, and names of ours."""
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    nodes = [model.graph.node[position] for position in sorted(part.nodes)]
    graph = result.graph
    graph.name = "part"
    graph.input.extend(_value(spec) for spec in part.inputs)
    graph.output.extend(_value(spec) for spec in part.outputs)
    _fill(graph, model.graph, constants, nodes, [])
    rename(graph, {})
    for value, spec in zip(graph.output, part.outputs, strict=True):
        value.type.CopyFrom(_value(spec).type)  # without the shape, which the checker wants
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
    return result


def _fill(
    target: onnx.GraphProto,
    source: onnx.GraphProto,
    constants: set[int],
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
) -> None:
    """Add nodes to a graph, with the initialisers and the nodes of constants that they and the outputs need."""
    needed = {*outputs, *(name for node in nodes for name in names_read(node))}
    made_before = []
    for position in sorted(constants, reverse=True):
        node = source.node[position]
        if needed.intersection(node.output):
            needed.update(names_read(node))
            made_before.append(node)
    target.node.extend(reversed(made_before))
    target.node.extend(nodes)
    target.initializer.extend(tensor for tensor in source.initializer if tensor.name in needed)
    target.sparse_initializer.extend(t for t in source.sparse_initializer if t.values.name in needed)


def _in_order(nodes: Sequence[tuple[onnx.NodeProto, Sequence[str]]]) -> list[onnx.NodeProto]:
    """Return nodes, each given with what it reads, so that every one comes after those that it reads from."""
    made_by = {name: position for position, (node, _) in enumerate(nodes) for name in node.output}
    before = {
        position: [made_by[name] for name in names if name in made_by]
        for position, (_, names) in enumerate(nodes)
    }
    return [nodes[position][0] for position in TopologicalSorter(before).static_order()]


def _value(spec: OpenSpec) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return onnx.helper.make_tensor_value_info(spec.name, element, list(spec.shape))


def _names(specs: Sequence[OpenSpec]) -> list[str]:
    return [spec.name for spec in specs]


def _other_model() -> InvalidModelError:
    return InvalidModelError(
        "the parts for ONNX Runtime were found in another model: import the model again", code="other-model"
    )
