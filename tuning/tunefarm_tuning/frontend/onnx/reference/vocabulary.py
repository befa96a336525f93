"""Find how large the integers of a network's inputs may be: the size of the table that they index."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import constant_tensors

_PASS_ON = frozenset(
    {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Expand"}
)
"""Operators whose results are integers of their first input."""
_LARGEST = 1 << 20


def index_limits(graph: onnx.GraphProto) -> Mapping[str, int]:
    """Return, by the name of an input, how many values its integers may have: 0 and up.

    Only uses as an index of a table among the graph's weights, or of a one-hot vector, tell. Inputs that have none are left out. An
    input that is also computed with may have fewer values, which running it tells.
    """
    values = dict(constant_tensors(graph))
    sizes = {name: tuple(tensor.dims) for name, tensor in values.items()}
    origins = {value.name: value.name for value in graph.input if value.name not in sizes}
    limits: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _PASS_ON and node.input and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
            # a table may be cast, too
        elif node.op_type == "Cast" and node.input[0] in sizes:
            sizes[node.output[0]] = sizes[node.input[0]]
        elif node.op_type == "Gather" and node.input[1] in origins and node.input[0] in sizes:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            _lower(limits, origins[node.input[1]], sizes[node.input[0]][axis])
        elif node.op_type == "OneHot" and node.input[0] in origins and node.input[1] in values:
            depth = numpy_helper.to_array(values[node.input[1]])
            _lower(limits, origins[node.input[0]], int(depth.reshape(-1)[0]))
        elif node.op_type == "Equal":
            # one-hot vectors, as JAX writes them: compared with 0, 1, 2, ...
            for position, other in ((0, 1), (1, 0)):
                counted = values.get(node.input[other])
                if node.input[position] in origins and counted is not None and _counts_up(counted):
                    _lower(limits, origins[node.input[position]], prod(counted.dims))
    return {name: limit for name, limit in limits.items() if limit > 0}


def _counts_up(tensor: onnx.TensorProto) -> bool:
    numbers = numpy_helper.to_array(tensor).reshape(-1)
    return (
        numbers.size > 2 and numbers.dtype.kind in "iu" and bool((numbers == np.arange(numbers.size)).all())
    )


def _lower(limits: dict[str, int], name: str, size: int) -> None:
    limits[name] = min(limits.get(name, _LARGEST), size)
