"""Packing by a reshape and a transpose: the same bytes as by the index map, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from tunefarm_tuning.tvm.kernels.digit_order import pack_by_digits

Indices = Callable[..., list[Any]]

DIGITS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Indices]] = {
    "transposed": ((6, 8), (8, 6), lambda i, j: [j, i]),
    "panels": ((6, 32), (2, 6, 16), lambda i, j: [j // 16, i, j % 16]),
    "tiles of tiles": (
        (3, 3, 8, 12),
        (2, 3, 2, 3, 4, 6),
        lambda y, x, i, o: [o // 6, y, i // 4, x, i % 4, o % 6],
    ),
    "two levels of one axis": ((24,), (2, 3, 4), lambda i: [(i % 8) // 4, i // 8, i % 4]),
    "an axis of one": ((1, 1, 4, 6), (3, 1, 4, 1, 2), lambda y, x, i, o: [o // 2, y, i, x, o % 2]),
    "unchanged": ((4, 6), (4, 6), lambda i, j: [i, j]),
}
OTHERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Indices]] = {
    "axes that are fused before they are split": (
        (4, 6),
        (8, 3),
        lambda i, j: [(i * 6 + j) % 8, (i * 6 + j) // 8],
    ),
    "an axis in reverse": ((4, 6), (6, 4), lambda i, j: [5 - j, i]),
    "an axis that is rotated": ((6,), (6,), lambda i: [(i + 1) % 6]),
}


def by_index_map(array: np.ndarray[Any, Any], index_map: tirx.IndexMap, shape: tuple[int, ...]) -> Any:
    packed = np.zeros(shape, array.dtype)
    for at in np.ndindex(array.shape):
        indices = index_map.map_indices([tirx.const(index, "int64") for index in at])
        packed[tuple(int(index) for index in indices)] = array[at]
    return packed


def of(shape: tuple[int, ...], indices: Indices) -> tuple[np.ndarray[Any, Any], tirx.IndexMap]:
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    # TVM's operators for whole numbers: // and % of its variables are ambiguous.
    index_map = tirx.IndexMap.from_func(
        lambda *at: [_plain(index) for index in indices(*map(_Index, at))],
        ndim=len(shape),
        index_dtype="int64",
    )
    return array, index_map


class _Index:
    """An index with Python's operators."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __floordiv__(self, by: int) -> _Index:
        return _Index(tirx.floordiv(self.value, by))

    def __mod__(self, by: int) -> _Index:
        return _Index(tirx.floormod(self.value, by))

    def __mul__(self, by: int) -> _Index:
        return _Index(self.value * by)

    def __add__(self, other: Any) -> _Index:
        return _Index(self.value + _plain(other))

    def __rsub__(self, other: int) -> _Index:
        return _Index(other - self.value)


def _plain(index: Any) -> Any:
    return index.value if isinstance(index, _Index) else index


@pytest.mark.parametrize("name", DIGITS)
def test_digits_are_packed_as_the_index_map_says(name: str) -> None:
    shape, packed_shape, indices = DIGITS[name]
    array, index_map = of(shape, indices)
    packed = pack_by_digits(array, index_map, packed_shape)
    assert packed is not None
    np.testing.assert_array_equal(packed, by_index_map(array, index_map, packed_shape))


@pytest.mark.parametrize("name", OTHERS)
def test_other_orders_are_left_to_the_compiler(name: str) -> None:
    shape, packed_shape, indices = OTHERS[name]
    array, index_map = of(shape, indices)
    assert pack_by_digits(array, index_map, packed_shape) is None
