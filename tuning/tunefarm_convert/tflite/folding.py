"""Constant folding: what a file computes from constants and shapes, its converters see as constants."""

from __future__ import annotations

import math

from tunefarm_convert.tflite.converter import OperatorContext

_MAX_ELEMENTS = 1 << 16
"""Maximum number of elements of the inputs, and of the outputs. Weights stay as the file has them."""


def fold(op: OperatorContext, since: int) -> None:
    """Replace the outputs of an operator on small constants by their values, if they can be computed.

    Args:
        op: The operator, converted.
        since: The number of nodes before it was converted.
    """
    values = op.values
    inputs = [index for index in op.operator.inputs if index >= 0]
    outputs = [index for index in op.operator.outputs if values.constant(index) is None]
    if not inputs or not outputs or any(values.constant(index) is None for index in inputs):
        return
    if any(values.tensor(index).is_quantized for index in (*inputs, *outputs)):
        return
    if any(sum(math.prod(values.shape(i)) for i in group) > _MAX_ELEMENTS for group in (inputs, outputs)):
        return
    names = [values.get(index) for index in outputs]
    try:
        results = op.writer.evaluate(names, since)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  (the nodes compute it at run time, or ONNX Runtime says what is wrong)
        return
    for index, result in zip(outputs, results, strict=True):
        tensor = values.tensor(index)
        if (result.shape, str(result.dtype)) != (tensor.shape, tensor.dtype):
            return
    for index, result in zip(outputs, results, strict=True):
        values.set_constant(index, result)
