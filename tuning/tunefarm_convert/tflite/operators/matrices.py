"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext


def _fully_connected(op: OperatorContext) -> None:
    shape, weights = op.shape(0), op.need_rank(1, 2)
    if op.option("WeightsFormat"):
        raise op.unsupported_form("shuffled weights are not supported")
    out = op.out_shape()
    if not out or out[-1] != weights[0] or weights[1] < 1 or math.prod(shape) % weights[1]:
        raise op.bad_file(f"weights of shape {list(weights)} do not take {list(shape)} to {list(out)}")
    rows = math.prod(shape) // weights[1]
    joined = _joined_product(op, rows)
    if joined is not None:
        if op.has(2):
            joined = op.node("Add", joined, op.values.bias(op.index(2)))
        if out != (rows, weights[0]):
            joined = op.node("Reshape", joined, op.writer.ints(out))
        op.finish(op.activated(joined))
        return
    keeps_dims = len(shape) > 2 and len(out) == len(shape) and shape[-1] == weights[1]
    if keeps_dims:
        result = op.node("MatMul", op.values.get(op.index(0)), op.values.arranged(op.index(1), (1, 0)))
        if op.has(2):
            result = op.node("Add", result, op.values.bias(op.index(2)))
    else:
        if shape == (rows, weights[1]):
            x = op.values.get(op.index(0))
        else:
            x = op.values.reshaped(op.index(0), [rows, weights[1]])
        bias = [op.values.bias(op.index(2))] if op.has(2) else []
        result = op.node("Gemm", x, op.values.get(op.index(1)), *bias, transB=1)
        if out != (rows, weights[0]):
            result = op.node("Reshape", result, op.writer.ints(out))
    op.finish(op.activated(result))


def _joined_product(op: OperatorContext, rows: int) -> str | None:
    """Return the product before bias as one of another tensor, if the input is a product with a constant itself.

    Both matrices become one, where that saves arithmetic: of a spectrum, most networks keep few bands.
    """
    product, weights = op.values.product(op.index(0)), op.values.constant(op.index(1))
    if product is None or weights is None or weights.dtype.kind != "f" or op.tensor(0).is_quantized:
        return None
    source, matrix = product
    units, depth = weights.shape
    inner = matrix.shape[0]
    if depth != matrix.shape[1] or inner * units > inner * depth + depth * units:
        return None
    joined = (matrix @ weights.astype(np.float64).T).astype(np.float32)
    return op.node("MatMul", op.values.reshaped(source, [rows, inner]), op.writer.weight(joined, "joined"))


def _batch_matmul(op: OperatorContext) -> None:
    sides = []
    for position, option in ((0, "AdjX"), (1, "AdjY")):
        rank = len(op.shape(position))
        if rank < 2:
            raise op.bad_file(f"input {position} of {rank} dimensions is not a matrix")
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        perm = swapped if op.option(option, False) else tuple(range(rank))
        sides.append(op.values.arranged(op.index(position), perm))
    op.finish(op.node("MatMul", *sides))


CONVERTERS: Mapping[str, Converter] = {"FULLY_CONNECTED": _fully_connected, "BATCH_MATMUL": _batch_matmul}
