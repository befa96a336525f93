"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tunefarm_convert.tflite.graph import bad_file, unsupported_form
from tunefarm_convert.tflite.step import Converter, Step


def _fully_connected(step: Step) -> None:
    shape, weights = step.shape(0), step.need_rank(1, 2)
    if step.option("WeightsFormat"):
        raise unsupported_form(step.operator, "shuffled weights are not supported")
    out = step.out_shape()
    if not out or out[-1] != weights[0] or weights[1] < 1 or math.prod(shape) % weights[1]:
        raise bad_file(
            f"{step.operator.place}: weights of shape {list(weights)} do not take {list(shape)} to {list(out)}"
        )
    rows = math.prod(shape) // weights[1]
    whole = len(shape) > 2 and len(out) == len(shape) and shape[-1] == weights[1]
    if whole:
        made = step.node(
            "MatMul", step.values.get(step.index(0)), step.values.arranged(step.index(1), (1, 0))
        )
        if step.has(2):
            made = step.node("Add", made, step.values.bias(step.index(2)))
    else:
        if shape == (rows, weights[1]):
            x = step.values.get(step.index(0))
        else:
            x = step.values.reshaped(step.index(0), [rows, weights[1]])
        bias = [step.values.bias(step.index(2))] if step.has(2) else []
        made = step.node("Gemm", x, step.values.get(step.index(1)), *bias, transB=1)
        if out != (rows, weights[0]):
            made = step.node("Reshape", made, step.writer.ints(out))
    step.finish(step.activated(made))


def _batch_matmul(step: Step) -> None:
    sides = []
    for position, option in ((0, "AdjX"), (1, "AdjY")):
        rank = len(step.shape(position))
        if rank < 2:
            raise bad_file(f"{step.operator.place}: input {position} of {rank} dimensions is no matrix")
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        perm = swapped if step.option(option, False) else tuple(range(rank))
        sides.append(step.values.arranged(step.index(position), perm))
    step.finish(step.node("MatMul", *sides))


CONVERTERS: Mapping[str, Converter] = {
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
}
