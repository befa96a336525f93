"""Pack a weight without any compiler, where its order is that of its axes, each split into digits, transposed.

Almost every order that a schedule asks for is such: tiles of the axes, the inner ones last. NumPy then packs it by a reshape and a
transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

Array = NDArray[Any]

_OPERATORS: Mapping[type, Callable[[Array, Array], Array]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
}


def pack_by_digits(array: Array, index_map: tirx.IndexMap, packed_shape: Sequence[int]) -> Array | None:
    """Return a weight in another order, of `packed_shape`; None if the order is not one of digits of its axes.

    Args:
        array: The weight.
        index_map: Maps the indices of an element to those in the packed weight, which has as many elements.
        packed_shape: The shape of the packed weight.
    """
    offsets = _offsets_by_axis(index_map, array.shape, packed_shape)
    if offsets is None:
        return None
    digits = [_digits(offset) for offset in offsets]
    # Sizes and strides of all digits, the axes' most significant ones first.
    flat: list[tuple[int, int]] = []
    for digit in digits:
        if digit is None:
            return None
        flat += reversed(digit)
    order = sorted(range(len(flat)), key=lambda number: -flat[number][1])
    innermost_first = [flat[number] for number in reversed(order)]
    dense = not innermost_first or innermost_first[0][1] == 1
    if not dense or any(size * stride != outer for (size, stride), (_, outer) in pairwise(innermost_first)):
        return None
    split = array.reshape([size for size, _ in flat])
    return np.ascontiguousarray(split.transpose(order)).reshape(packed_shape)


def _offsets_by_axis(
    index_map: tirx.IndexMap, shape: Sequence[int], packed_shape: Sequence[int]
) -> list[Array] | None:
    """Return what each index of each axis adds to an element's offset in the packed weight; None if axes are mixed."""
    variables = list(index_map.initial_indices)
    offsets = [np.zeros(size, np.int64) for size in shape]
    stride = math.prod(packed_shape)
    for index, size in zip(index_map.final_indices, packed_shape, strict=True):
        stride //= size
        used = {n for n, variable in enumerate(variables) if _uses(index, variable)}
        if len(used) > 1:
            return None
        axis = used.pop() if used else 0
        values = _evaluated(index, variables[axis], np.arange(shape[axis]))
        if values is None:
            return None
        offsets[axis] = offsets[axis] + stride * values
    return offsets


def _uses(expression: Any, variable: Any) -> bool:
    if isinstance(expression, tirx.Var):
        return bool(expression.same_as(variable))
    return any(_uses(getattr(expression, side), variable) for side in ("a", "b") if hasattr(expression, side))


def _evaluated(expression: Any, variable: Any, values: Array) -> Array | None:
    """Return an expression's values at the values of its only variable; None if it has other operators than index maps do."""
    if isinstance(expression, tirx.IntImm):
        return np.full_like(values, int(expression))
    if isinstance(expression, tirx.Var):
        return values if expression.same_as(variable) else None
    operator = _OPERATORS.get(type(expression))
    if operator is None:
        return None
    left, right = (_evaluated(side, variable, values) for side in (expression.a, expression.b))
    return None if left is None or right is None else operator(left, right)


def _digits(offsets: Array) -> list[tuple[int, int]] | None:
    """Return sizes and strides of digits, the least significant first, whose sums are these offsets; None if there are none."""
    size, digits = len(offsets), list[tuple[int, int]]()
    known = 1  # so many offsets are sums of the digits
    while known < size:
        stride = int(offsets[known])
        heads = offsets[known::known] == stride * np.arange(1, len(offsets[known::known]) + 1)
        count = 1 + (len(heads) if heads.all() else int(np.argmin(heads)))
        if size % (known * count):
            return None
        digits.append((count, stride))
        known *= count
    rebuilt = np.zeros(1, np.int64)
    for count, stride in digits:
        rebuilt = (stride * np.arange(count)[:, None] + rebuilt[None, :]).reshape(-1)
    return digits if np.array_equal(rebuilt, offsets) else None
