"""Infer the types of a network's tensors without its large weights, which ONNX would otherwise write and read three times."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, shape_inference

_LARGE_BYTES = 4096
_NUMBERS = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.UINT8,
    }
)
"""Types of which no sizes are made: only the shape of such a weight tells anything about other tensors."""


def with_inferred_types(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Return a network with the types of its tensors, as ONNX infers them.

    Args:
        model: The network. It loses its large weights, which the result has.
        data_prop: Whether sizes are followed through computations.

    Raises:
        Exception: As `onnx.shape_inference.infer_shapes`, which has errors of many types.
    """
    graph = model.graph
    kept, large = onnx.GraphProto(), onnx.GraphProto()
    for tensor in graph.initializer:
        is_large = tensor.data_type in _NUMBERS and tensor.ByteSize() > _LARGE_BYTES
        (large if is_large else kept).initializer.append(tensor)
    inputs = len(graph.input)
    known = {value.name for value in graph.input}
    del graph.initializer[:]
    graph.initializer.extend(kept.initializer)
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in large.initializer
        if tensor.name not in known
    )
    inferred: onnx.ModelProto = shape_inference.infer_shapes(model, strict_mode=False, data_prop=data_prop)
    del inferred.graph.input[inputs:]
    inferred.graph.initializer.extend(large.initializer)
    return inferred
