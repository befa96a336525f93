"""Changes of an ONNX model's shapes and weights."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mutants.values import FLOATS, SIZES, Aims, near64

_INTEGERS = {TensorProto.INT64: np.int64, TensorProto.INT32: np.int32}
_HIGHEST_RANK = 5000
_MOST_NUMBERS = 1e6


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all that its nodes hold."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from graphs(inner)


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return all weights, and all constants that are attributes."""
    return [
        tensor
        for graph in graphs(model.graph)
        for tensor in (
            *graph.initializer,
            *(a.t for node in graph.node for a in node.attribute if a.HasField("t")),
        )
    ]


def change_shape(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Change what an input, an output or an inner value says of its shape or type."""
    values = [
        value for graph in graphs(model.graph) for value in (*graph.input, *graph.output, *graph.value_info)
    ]
    if not values:
        return False
    tensor = rng.choice(values).type.tensor_type
    dims = tensor.shape.dim
    kind = rng.randrange(6)
    if kind == 0:
        tensor.elem_type = rng.choice((*range(26), -1, 1 << 20))
    elif kind == 1:
        for _ in range(rng.choice((1, 2, 30, _HIGHEST_RANK))):
            dims.add().dim_value = rng.choice((1, 2, 1 << 33))
    elif kind == 2 and dims:
        del dims[rng.randrange(len(dims))]
    elif kind == 3 and dims:
        rng.choice(dims).dim_param = rng.choice(("n", "", "batch*2", "\x00", "-1"))
    elif kind == 4:
        tensor.ClearField("shape")
    elif dims:
        dim = rng.choice(dims)
        dim.dim_value = near64(rng, dim.dim_value)
    else:
        tensor.ClearField("elem_type")
    return True


def change_weight(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Let a weight's shape, type or length disagree with its bytes, or set one of its numbers to an odd one."""
    weights = tensors(model)
    if not weights:
        return False
    weight = rng.choice(weights)
    kind = rng.randrange(7)
    if kind == 0 and weight.dims:
        index = rng.randrange(len(weight.dims))
        weight.dims[index] = near64(rng, weight.dims[index])
    elif kind == 1:
        weight.dims.extend(rng.choice(SIZES) for _ in range(rng.choice((1, 3, 200))))
    elif kind == 2 and weight.raw_data:
        length = rng.choice((0, 1, len(weight.raw_data) // 2, len(weight.raw_data) - 1))
        weight.raw_data = weight.raw_data[:length]
    elif kind == 3:
        weight.raw_data += bytes(rng.randrange(256) for _ in range(rng.choice((1, 3, 8, 4096))))
    elif kind == 4:
        weight.data_type = rng.choice((*range(26), -1, 99))
    elif kind == 5:
        weight.float_data.extend([1.0] * 3)
        weight.int64_data.append(1 << 62)
    else:
        return _set_float(weight, rng)
    return True


def _set_float(weight: onnx.TensorProto, rng: random.Random) -> bool:
    if weight.data_type != TensorProto.FLOAT or not weight.raw_data or len(weight.raw_data) % 4:
        return False
    values = np.frombuffer(weight.raw_data, np.float32).copy()
    values[rng.randrange(values.size) if rng.random() < 0.5 else slice(None)] = rng.choice(FLOATS)
    weight.raw_data = values.tobytes()
    return True


def change_index(model: onnx.ModelProto, rng: random.Random, _aims: Aims) -> bool:
    """Set a number of a constant of integers: an index, an axis, a size, a repetition."""
    constants = [
        tensor
        for tensor in tensors(model)
        if tensor.data_type in _INTEGERS
        and tensor.data_location != TensorProto.EXTERNAL
        and 0 < np.prod(tensor.dims, dtype=np.float64) < _MOST_NUMBERS
    ]
    if not constants:
        return False
    tensor = rng.choice(constants)
    try:
        values = numpy_helper.to_array(tensor).copy()
    except ValueError:  # an earlier change has left it with too few bytes
        return False
    limits = np.iinfo(values.dtype)
    position = rng.randrange(values.size)
    values.flat[position] = max(limits.min, min(limits.max, near64(rng, int(values.flat[position]))))
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True


def move_weight(model: onnx.ModelProto, rng: random.Random, aims: Aims) -> bool:
    """Say that a weight stands in another file."""
    weights = tensors(model)
    if not weights:
        return False
    weight = rng.choice(weights)
    weight.ClearField("external_data")
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": rng.choice(aims.paths)}
    if rng.random() < 0.5:
        entries["offset"] = str(rng.choice(SIZES))
    if rng.random() < 0.5:
        entries["length"] = str(rng.choice((4, *SIZES)))
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    if rng.random() < 0.7:
        weight.ClearField("raw_data")
    if rng.random() < 0.1:
        weight.ClearField("data_location")
    return True
