"""Fourier transforms, as products with constant matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.converter import Converter, OperatorContext

_LARGEST_MATRIX = 40_000_000
"""Maximum number of elements of a transform's matrix: 8,192 samples."""


def _matrices(op: OperatorContext, size: int, rows: int, columns: int) -> list[NDArray[np.float64]]:
    """Return the real and imaginary parts of the first rows and columns of the transform over `size` elements."""
    if rows * columns > _LARGEST_MATRIX:
        raise op.unsupported_form(f"a transform over {size} elements is too long; the limit is 8192")
    angles = np.outer(np.arange(rows), np.arange(columns)) % size * (-2 * np.pi / size)
    return [np.cos(angles), np.sin(angles)]


def _real_transform(op: OperatorContext) -> None:
    shape = op.shape(0)
    lengths = op.ints(1, "the length of the transform")
    if len(shape) < 2 or len(lengths) != 2 or min(lengths) < 1:
        raise op.bad_file(f"a transform over {lengths} elements of {list(shape)}")
    height, width = lengths
    used_height, used_width = min(shape[-2], height), min(shape[-1], width)
    source = op.index(0)
    x = op.values.get(source)
    if (used_height, used_width) != shape[-2:]:
        ends = [op.writer.ints(sizes) for sizes in ((0, 0), (used_height, used_width), (-2, -1))]
        x = op.node("Slice", x, *ends)
    # Elements that are missing are zeros: their rows of the matrices are left out.
    across = _matrices(op, width, used_width, width // 2 + 1)
    parts = [op.node("MatMul", x, _weight(op, matrix)) for matrix in across]
    if height > 1:
        cos, sin = (_weight(op, matrix.T) for matrix in _matrices(op, height, used_height, height))
        (a, b), (c, d) = ([op.node("MatMul", m, part) for part in parts] for m in (cos, sin))
        parts = [op.node("Sub", a, d), op.node("Add", b, c)]
    elif shape[-2:] == (used_height, used_width):
        for position, matrix in enumerate(across):
            op.values.note_product(op.output(position), source, matrix)
    for position, part in enumerate(parts):
        op.finish(part, position=position)


def _weight(op: OperatorContext, matrix: NDArray[np.float64]) -> str:
    return op.writer.weight(np.ascontiguousarray(matrix, np.float32), "fourier")


def _magnitude(op: OperatorContext) -> None:
    squares = [op.node("Mul", part, part) for part in (op.values.get(op.index(i)) for i in range(2))]
    op.finish(op.node("Sqrt", op.node("Add", *squares)))


CONVERTERS: Mapping[str, Converter] = {"RFFT2D": _real_transform, "COMPLEX_ABS": _magnitude}
