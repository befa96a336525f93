"""Changes of what an ONNX model says about itself, and of the list of all changes."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx

from mutants.onnx_nodes import change_attribute, change_node, nest
from mutants.onnx_tensors import change_index, change_shape, change_weight, move_weight
from mutants.values import SIZES, TEXTS, Aims

_OPSETS = (-1, 0, 1, 5, 6, *range(7, 24), 24, 25, 99, 1 << 31, (1 << 63) - 1)


def change_opset(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Lie about an opset or the format's version."""
    kind = rng.randrange(5)
    if kind == 0:
        model.ir_version = rng.choice((-1, 0, 1, 2, 3, 99, 1 << 40))
    elif kind == 1:
        model.opset_import.add(domain=rng.choice(("", "ai.onnx", "mine")), version=rng.choice(_OPSETS))
    elif kind == 2:
        del model.opset_import[:]
    else:
        for entry in model.opset_import:
            entry.version = rng.choice(_OPSETS)
    return True


def change_names(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Give something an odd name, or two things the same."""
    graph = model.graph
    kind = rng.randrange(5)
    if kind == 0 and graph.initializer:
        rng.choice(graph.initializer).name = rng.choice((*TEXTS, *(value.name for value in graph.input)))
    elif kind == 1:
        for _ in range(rng.choice((1, 300))):
            model.metadata_props.add(key=rng.choice(TEXTS), value=rng.choice(TEXTS) * 10)
    elif kind == 2 and graph.output:
        graph.output.add().CopyFrom(rng.choice(graph.output))
    elif kind == 3 and graph.input:
        rng.choice(graph.input).name = rng.choice(TEXTS)
    elif graph.output:
        rng.choice(graph.output).name = rng.choice(
            (*TEXTS, *(name for node in graph.node for name in node.input))
        )
    return True


def add_sparse(model: onnx.ModelProto, rng: random.Random, aims: Aims) -> bool:
    """Add a sparse weight or a quantisation whose parts disagree."""
    sparse = model.graph.sparse_initializer.add()
    sparse.values.name = rng.choice(("sparse", *(weight.name for weight in model.graph.initializer)))
    sparse.values.data_type = onnx.TensorProto.FLOAT
    sparse.values.dims.append(rng.choice(SIZES))
    sparse.indices.data_type = onnx.TensorProto.INT64
    sparse.indices.dims.append(1)
    sparse.indices.int64_data.append(rng.choice(SIZES))
    sparse.dims.extend((rng.choice(SIZES), 4))
    if rng.random() < 0.5:
        sparse.values.data_location = onnx.TensorProto.EXTERNAL
        sparse.values.external_data.add(key="location", value=rng.choice(aims.paths))
    return True


CHANGES: dict[str, Callable[[onnx.ModelProto, random.Random, Aims], bool]] = {
    "shape": change_shape,
    "weight": change_weight,
    "index": change_index,
    "external data": move_weight,
    "attribute": change_attribute,
    "node": change_node,
    "nested graph": nest,
    "opset": change_opset,
    "name": change_names,
    "sparse weight": add_sparse,
}
WEIGHTS = (3, 3, 4, 2, 4, 3, 3, 1, 1, 0.5)
"""How often each is drawn."""
