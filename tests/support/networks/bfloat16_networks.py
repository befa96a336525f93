"""Networks of one product each that can be computed in bfloat16, and what comes of them if their factors were rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx_models import GraphBuilder


def conv(shape: Sequence[int], out: int, kernel: int, **how: Any) -> onnx.ModelProto:
    graph = GraphBuilder()
    weight = graph.weight(out, shape[1] // how.get("group", 1), kernel, kernel)
    y = graph.node("Conv", graph.input("x", shape), weight, kernel_shape=[kernel, kernel], **how)
    graph.output(y)
    return graph.model()


def product(shape: Sequence[int], out: int) -> onnx.ModelProto:
    graph = GraphBuilder()
    graph.output(graph.node("MatMul", graph.input("x", shape), graph.weight(shape[-1], out)))
    return graph.model()


NETWORKS: dict[str, onnx.ModelProto] = {
    "3x3": conv([1, 16, 10, 10], 32, 3, pads=[1] * 4),
    "odd channels": conv([1, 5, 11, 13], 19, 3, pads=[1, 0, 2, 1], strides=[2, 1]),
    "dilated, two images": conv([2, 7, 9, 9], 35, 3, pads=[1] * 4, dilations=[2, 1]),
    "1x1": conv([1, 32, 7, 7], 48, 1),
    "1x1, stride": conv([1, 32, 8, 8], 48, 1, strides=[2, 2]),
    "first of a network": conv([1, 3, 20, 20], 16, 7, pads=[3] * 4, strides=[2, 2]),
    "rows left over": conv([1, 64, 19, 19], 96, 1),
    "groups": conv([1, 64, 9, 9], 64, 3, pads=[1] * 4, group=2),
    "small groups, stride": conv([1, 48, 11, 9], 96, 3, pads=[1] * 4, group=6, strides=[2, 2]),
    "groups, odd": conv([2, 102, 7, 7], 66, 1, group=3),
    "small groups, odd": conv([1, 72, 8, 8], 72, 3, pads=[1] * 4, group=8),
    "matrices": product([1, 13, 64], 80),
    "matrices, odd": product([2, 3, 5, 27], 21),
    "a row": product([1, 100], 70),
}


def rounded(array: NDArray[Any]) -> NDArray[np.float32]:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def of_rounded_factors(model: onnx.ModelProto, x: NDArray[Any]) -> NDArray[Any]:
    """Return the results of a network of one product whose factors were rounded, in float64."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(rounded(array).astype(np.float64), tensor.name))
    for value in (*copy.graph.input, *copy.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    (result,) = onnx.reference.ReferenceEvaluator(copy).run(None, {"x": rounded(x).astype(np.float64)})
    return np.asarray(result)
