"""Where the stored elements of a sparse tensor belong.

TFLite stores a sparse tensor level by level: one level for each dimension, in any order, and one more for each
dimension that is cut into blocks. A dense level has all its positions; a compressed one lists those that it has, as in
compressed sparse rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.graph import bad_file
from tunefarm_tuning.core.errors import InvalidModelError

_DENSE, _COMPRESSED = 0, 1
_LARGEST_ELEMENTS = 1 << 28
"""Maximum number of elements of a sparse tensor once it is dense: a file of a hundred bytes may ask for any number."""
_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}


def read_numbers(array: Any) -> tuple[Any, ...]:
    """Return a vector of the file; the library returns 0 for a missing one."""
    return tuple(array.tolist()) if isinstance(array, np.ndarray) else ()


def read_layout(table: Any, shape: tuple[int, ...], label: str) -> NDArray[np.int64]:
    """Return the position in the dense tensor of each stored element.

    Args:
        table: The sparsity parameters of the file.
        shape: Shape of the dense tensor.
        label: Names the tensor in errors.

    Raises:
        InvalidModelError: invalid-tflite, too-large.
    """
    if math.prod(shape) > _LARGEST_ELEMENTS:
        raise InvalidModelError(
            f"{label} is sparse and has {math.prod(shape)} elements; the limit is {_LARGEST_ELEMENTS}",
            code="too-large",
        )
    order, blocked = read_numbers(table.TraversalOrderAsNumpy()), read_numbers(table.BlockMapAsNumpy())
    num_levels = table.DimMetadataLength()
    if sorted(order) != list(range(len(shape) + len(blocked))) or num_levels != len(order):
        raise bad_file(f"{label} is sparse, and its levels are not those of a shape {list(shape)}")
    if len(set(blocked)) != len(blocked) or any(not 0 <= dim < len(shape) for dim in blocked):
        raise bad_file(f"{label} is sparse, and its blocks are of no dimensions of {list(shape)}")
    levels = {dim: table.DimMetadata(level) for level, dim in enumerate(order)}
    extents = [*shape, *(levels[len(shape) + i].DenseSize() for i in range(len(blocked)))]
    for dim, size in zip(blocked, extents[len(shape) :], strict=True):
        if size < 1 or shape[dim] % size:
            raise bad_file(f"{label} is sparse, and blocks of {size} do not fit {list(shape)}")
        extents[dim] //= size
    return _positions([(dim, levels[dim]) for dim in order], extents, shape, blocked, label)


def _positions(
    levels: list[tuple[int, Any]],
    extents: list[int],
    shape: tuple[int, ...],
    blocked: tuple[int, ...],
    label: str,
) -> NDArray[np.int64]:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    for i, dim in enumerate(blocked):
        strides.append(strides[dim])
        strides[dim] *= extents[len(shape) + i]
    positions = np.zeros(1, np.int64)
    for dim, level in levels:
        if level.Format() == _DENSE:
            if level.DenseSize() != extents[dim]:
                raise bad_file(f"{label} is sparse, and a level of it has {level.DenseSize()} positions")
            steps = np.arange(extents[dim], dtype=np.int64) * strides[dim]
            positions = (positions[:, None] + steps).reshape(-1)
            continue
        segments = _vector(level.ArraySegments(), level.ArraySegmentsType())
        indices = _vector(level.ArrayIndices(), level.ArrayIndicesType())
        counts = np.diff(segments)
        if (
            level.Format() != _COMPRESSED
            or len(segments) != len(positions) + 1
            or segments[0]
            or segments[-1] != len(indices)
            or np.any(counts < 0)
            or np.any((indices < 0) | (indices >= extents[dim]))
        ):
            raise bad_file(f"{label} is sparse, and its lists of positions are damaged")
        positions = np.repeat(positions, counts) + indices * strides[dim]
    if len(np.unique(positions)) != len(positions):
        raise bad_file(f"{label} is sparse, and stores an element twice")
    return positions


def _vector(table: Any, kind: int) -> NDArray[np.int64]:
    import tflite

    name = _VECTORS.get(kind)
    if table is None or name is None:
        return np.zeros(0, np.int64)
    vector = getattr(tflite, name)()
    vector.Init(table.Bytes, table.Pos)
    values = vector.ValuesAsNumpy()
    return values.astype(np.int64) if isinstance(values, np.ndarray) else np.zeros(0, np.int64)
