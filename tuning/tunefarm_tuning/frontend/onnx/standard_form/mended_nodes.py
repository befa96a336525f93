"""Nodes whose meaning is clear, but which ONNX Runtime refuses: they get the form that it takes."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS, all_graphs, all_nodes
from tunefarm_tuning.frontend.onnx.reference.inferred_types import with_inferred_types


def mend_nodes(model: onnx.ModelProto) -> None:
    """Mend the nodes of a model, which is changed.

    - What the file says of the result of `Cast` is dropped if the node says another type, as after a conversion to float16.
    - `Transpose` counts axes from the end, as PyTorch's exporter writes `permute(0, -2, -1, 1)`: they are counted from the front.
    - `GridSample` of floats reads a float64 grid, for which ONNX Runtime has no kernel: the grid is cast to float32.
    """
    for graph in all_graphs(model.graph):
        _drop_other_types(graph)
    for node in all_nodes(model.graph):
        if node.domain in ONNX_DOMAINS and node.op_type == "Transpose":
            _count_from_the_front(node)
    if any(_samples(node) for node in model.graph.node):
        _narrow_grids(model)


def _drop_other_types(graph: onnx.GraphProto) -> None:
    cast_to = {
        name: attribute.i
        for node in graph.node
        if node.domain in ONNX_DOMAINS and node.op_type == "Cast"
        for name in node.output
        for attribute in node.attribute
        if attribute.name == "to"
    }
    kept = [
        value
        for value in graph.value_info
        if cast_to.get(value.name, value.type.tensor_type.elem_type) == value.type.tensor_type.elem_type
    ]
    if len(kept) < len(graph.value_info):
        changed = onnx.GraphProto(value_info=kept)  # copies: the graph's own go with the next line
        del graph.value_info[:]
        graph.value_info.extend(changed.value_info)


def _count_from_the_front(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        rank = len(attribute.ints)
        if attribute.name == "perm" and min(attribute.ints, default=0) < 0:
            # An axis beyond the first stays negative, and is refused.
            attribute.ints[:] = [axis + rank if axis < 0 else axis for axis in attribute.ints]


def _samples(node: onnx.NodeProto) -> bool:
    return node.domain in ONNX_DOMAINS and node.op_type == "GridSample" and len(node.input) == 2


def _narrow_grids(model: onnx.ModelProto) -> None:
    types = _element_types(model)
    nodes = []
    for node in model.graph.node:
        if _samples(node) and _is_of_two_widths(types, node):
            narrow = f"{node.output[0]} of a float32 grid"
            nodes.append(helper.make_node("Cast", [node.input[1]], [narrow], narrow, to=TensorProto.FLOAT))
            node.input[1] = narrow
        nodes.append(node)
    if len(nodes) > len(model.graph.node):
        changed = onnx.GraphProto(node=nodes)  # copies: the graph's own go with the next line
        del model.graph.node[:]
        model.graph.node.extend(changed.node)


def _is_of_two_widths(types: dict[str, int], node: onnx.NodeProto) -> bool:
    data, grid = (types.get(name) for name in node.input)
    return grid == TensorProto.DOUBLE and data in (TensorProto.FLOAT, TensorProto.FLOAT16)


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element types of a graph's tensors, as far as ONNX infers them."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    try:
        inferred = with_inferred_types(probe).graph
    except Exception:  # noqa: BLE001  (of many types; the checker tells what is wrong)
        return {}
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    return types | {tensor.name: tensor.data_type for tensor in inferred.initializer}
