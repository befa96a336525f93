"""Changes of an ONNX model's nodes: attributes, operators, edges, inner graphs and functions."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx
import onnx_zoo
from onnx import AttributeProto, TensorProto, helper

from mutants.onnx_tensors import graphs
from mutants.values import FLOATS, SIZES, TEXTS, Aims, near64

_DEPTHS = (1, 2, 8, 20)  # protobuf reads 100 levels, three of them for each graph
_TYPES = AttributeProto.AttributeType.values()


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for graph in graphs(model.graph) for node in graph.node]


def change_attribute(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Change the value, type, name or number of a node's attributes."""
    nodes = [node for node in _nodes(model) if node.attribute]
    if not nodes:
        return False
    node = rng.choice(nodes)
    attribute = rng.choice(node.attribute)
    kind = rng.randrange(8)
    if kind == 0:
        attribute.type = rng.choice(_TYPES)
    elif kind == 1:
        node.attribute.add().CopyFrom(attribute)
    elif kind == 2:
        node.attribute.remove(attribute)
    elif kind == 3:
        attribute.name = rng.choice((*TEXTS, "axis", "axes", "perm", "group", "kernel_shape"))
    else:
        _change_value(attribute, rng)
    return True


def _change_value(attribute: onnx.AttributeProto, rng: random.Random) -> None:
    if attribute.ints:
        kind = rng.randrange(3)
        if kind == 0:
            attribute.ints.extend(rng.choice(SIZES) for _ in range(rng.choice((1, 2, 1000))))
        elif kind == 1:
            del attribute.ints[rng.randrange(len(attribute.ints)) :]
        else:
            index = rng.randrange(len(attribute.ints))
            attribute.ints[index] = near64(rng, attribute.ints[index])
    elif attribute.type == AttributeProto.INT:
        attribute.i = near64(rng, attribute.i)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(TEXTS).encode()
    elif attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(FLOATS)
    elif attribute.strings:
        attribute.strings[rng.randrange(len(attribute.strings))] = rng.choice(TEXTS).encode()
    else:
        attribute.i = rng.choice(SIZES)


def change_node(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Change a node's operator, domain, inputs or outputs."""
    nodes = _nodes(model)
    if not nodes:
        return False
    node, other = rng.choice(nodes), rng.choice(nodes)
    changes: list[Callable[[], object]] = [
        lambda: setattr(node, "op_type", _any_operator(rng)),
        lambda: setattr(node, "op_type", rng.choice(TEXTS)),
        lambda: setattr(
            node, "domain", rng.choice(("ai.onnx.ml", "com.microsoft", "", "mine", "ai.onnx.training"))
        ),
        lambda: node.input.append(rng.choice((*node.output, *other.output, "", "nowhere"))),
        lambda: node.input.pop(rng.randrange(len(node.input))),
        lambda: node.input.__setitem__(
            rng.randrange(len(node.input)), rng.choice((*other.output, *other.input))
        ),
        lambda: node.output.append(rng.choice((*other.output, "more"))),
        lambda: node.output.__setitem__(0, rng.choice((*other.output, *node.input))),
        lambda: node.ClearField("input"),
        lambda: node.ClearField("output"),
        lambda: model.graph.node.add().CopyFrom(node),
        lambda: model.graph.node.pop(rng.randrange(len(model.graph.node))),
        lambda: node.input.extend([node.input[0]] * 3000),
    ]
    try:
        rng.choice(changes)()
    except (IndexError, ValueError):  # it has no inputs, or no outputs
        return False
    return True


def _any_operator(rng: random.Random) -> str:
    name = rng.choice(onnx_zoo.names())
    nodes = onnx_zoo.build(name, onnx_zoo.opsets(name)[-1]).graph.node
    return str(rng.choice(nodes).op_type) if nodes else "Relu"


def nest(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Put a node into branches, a loop or a function of its own, perhaps a deep or a wrong one."""
    graph = model.graph
    if not graph.node:
        return False
    position = rng.randrange(len(graph.node))
    node = onnx.NodeProto()
    node.CopyFrom(graph.node[position])
    kind = rng.choice(("If", "Loop", "Scan", "function"))
    if kind == "function":
        wrapped = _into_function(model, node, rng)
    else:
        wrapped = node
        for _ in range(rng.choice(_DEPTHS)):
            wrapped = _into_branches(wrapped, node, rng) if kind == "If" else _into_loop(wrapped, kind, rng)
        graph.initializer.extend(
            [
                helper.make_tensor("mutant-flag", TensorProto.BOOL, [], [rng.random() < 0.5]),
                helper.make_tensor("mutant-count", TensorProto.INT64, [], [rng.choice((1, *SIZES))]),
            ]
        )
    graph.node[position].CopyFrom(wrapped)
    return True


def _into_branches(node: onnx.NodeProto, innermost: onnx.NodeProto, rng: random.Random) -> onnx.NodeProto:
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    other = rng.choice((outputs, outputs, outputs[:-1], outputs * 2))
    bodies = [
        helper.make_graph([node], "branch", [], outputs),
        helper.make_graph([innermost], "branch", [], other),
    ]
    return helper.make_node(
        "If", ["mutant-flag"], list(node.output), then_branch=bodies[0], else_branch=bodies[1]
    )


def _into_loop(node: onnx.NodeProto, kind: str, rng: random.Random) -> onnx.NodeProto:
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    flag = helper.make_tensor_value_info("mutant-go", TensorProto.BOOL, [])
    step = helper.make_tensor_value_info("mutant-step", TensorProto.INT64, [])
    given, results = ([step, flag], [flag, *outputs]) if kind == "Loop" else ([], outputs)
    body = helper.make_graph([node], "body", given[: rng.choice((2, 2, 1))], results)
    if kind == "Loop":
        inputs = ["mutant-count", rng.choice(("mutant-flag", ""))]
        return helper.make_node("Loop", inputs, list(node.output), body=body)
    return helper.make_node(
        "Scan", list(node.input), list(node.output), body=body, num_scan_inputs=rng.choice((1, *SIZES))
    )


def _into_function(model: onnx.ModelProto, node: onnx.NodeProto, rng: random.Random) -> onnx.NodeProto:
    inputs = [f"in{i}" for i in range(len(node.input))]
    outputs = [f"out{i}" for i in range(len(node.output))]
    body = onnx.NodeProto()
    body.CopyFrom(node)
    del body.input[:], body.output[:]
    body.input.extend(inputs)
    body.output.extend(outputs)
    name = rng.choice(("Mutant", node.op_type))
    domain = rng.choice(("mutants", "", "mutants"))
    if rng.random() < 0.3:
        body.op_type, body.domain = name, domain  # calls itself
    imports = list(model.opset_import)
    model.functions.append(helper.make_function(domain, name, inputs, outputs, [body], imports))
    if rng.random() < 0.9:
        model.opset_import.append(helper.make_opsetid("mutants", 1))
    return helper.make_node(name, list(node.input), list(node.output), domain=domain)
