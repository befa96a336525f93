"""Matrix products, with any dimensions as batches, rows, columns and summed dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.movement import cast, reshaped, transposed
from tunefarm_convert.stablehlo.values import Emitter, Value
from tunefarm_tuning.core.array_file import numpy_dtype


def product(
    emit: Emitter,
    a: Value,
    b: Value,
    batch: tuple[Sequence[int], Sequence[int]],
    summed: tuple[Sequence[int], Sequence[int]],
    dtype: str,
) -> Value:
    """Return the product of two tensors, of shape (batches, other dimensions of `a`, other dimensions of `b`).

    `batch` and `summed` are dimensions of each operand: the batches, and those that are summed over.
    """
    free_of_a = [i for i in range(a.rank) if i not in batch[0] and i not in summed[0]]
    right = [i for i in range(b.rank) if i not in batch[1] and i not in summed[1]]
    if a.data is not None and b.data is None and not batch[0]:
        # A weight on the left is swapped to the right, which kernels are made for.
        result = product(emit, b, a, (batch[1], batch[0]), (summed[1], summed[0]), dtype)
        order = [*range(len(right), len(right) + len(free_of_a)), *range(len(right))]
        return transposed(result, order)
    inner = _inner_type(dtype)
    a, b = (cast(emit, value, inner) for value in (a, b))
    batches = [a.shape[i] for i in batch[0]]
    rows, columns = [a.shape[i] for i in free_of_a], [b.shape[i] for i in right]
    depth = math.prod(a.shape[i] for i in summed[0])
    a = transposed(a, [*batch[0], *free_of_a, *summed[0]])
    b = transposed(b, [*batch[1], *summed[1], *right])
    if not batches and rows:
        # The leading dimensions of `a` serve as batches.
        a = reshaped(emit, a, [*rows, depth])
        b = reshaped(emit, b, [depth, math.prod(columns)])
    else:
        a = reshaped(emit, a, [*batches, math.prod(rows), depth])
        b = reshaped(emit, b, [*batches, depth, math.prod(columns)])
    shape = (*a.shape[:-1], b.shape[-1])
    result = emit.computed(emit.node("MatMul", [emit.name(a), emit.name(b)]), shape, inner)
    return cast(emit, reshaped(emit, result, [*batches, *rows, *columns]), dtype)


def _inner_type(dtype: str) -> str:
    """Return the dtype to sum in: ONNX Runtime has no product of narrow integers."""
    kind = numpy_dtype(dtype).kind
    return dtype if kind not in "iub" or dtype in ("int32", "int64") else "int64"


def _dot_general(op: OperatorContext) -> list[Value]:
    numbers = op.attribute("dot_dimension_numbers")
    a, b = op.operands
    batch = (numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"])
    summed = (numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"])
    return [product(op.emit, a, b, batch, summed, op.result().dtype)]


def _dot(op: OperatorContext) -> list[Value]:
    a, b = op.operands
    return [product(op.emit, a, b, ([], []), ([a.rank - 1], [0]), op.result().dtype)]


CONVERTERS: Mapping[str, Converter] = {"stablehlo.dot_general": _dot_general, "stablehlo.dot": _dot}
