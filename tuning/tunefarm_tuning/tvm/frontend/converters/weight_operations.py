"""Operations on weights: done at once, by NumPy, where the weights are constants, else written into the graph.

So no pass has to fold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_shape,
)
from tunefarm_tuning.tvm.kernels.layers.recurrent import TILE, tiled


def sliced_at(context: NodeContext, x: Any, number: int, first: int, last: int) -> Any:
    """Return ``x[number, first:last]``."""
    value = constant_value(x)
    if value is not None:
        return const(np.ascontiguousarray(value[number, first:last]))
    cut = context.emit(relax.op.strided_slice(x, [0, 1], [number, first], [number + 1, last]))
    return context.emit(relax.op.squeeze(cut, [0]))


def sliced(context: NodeContext, x: Any, first: int, last: int) -> Any:
    """Return ``x[first:last]``."""
    value = constant_value(x)
    if value is not None:
        return const(np.ascontiguousarray(value[first:last]))
    return context.emit(relax.op.strided_slice(x, [0], [first], [last]))


def added(context: NodeContext, a: Any, b: Any) -> Any:
    """Return the sum of two tensors of one shape."""
    values = constant_value(a), constant_value(b)
    if values[0] is not None and values[1] is not None:
        return const(values[0] + values[1])
    return context.emit(relax.op.add(a, b))


def joined(context: NodeContext, parts: Sequence[Any]) -> Any:
    """Return vectors one behind the other."""
    values = [constant_value(x) for x in parts]
    if all(value is not None for value in values):
        return const(np.concatenate([value for value in values if value is not None]))
    return context.emit(relax.op.concat(list(parts), 0))


def reshaped(context: NodeContext, x: Any, shape: Sequence[int]) -> Any:
    """Return the same elements in another shape."""
    value = constant_value(x)
    return const(value.reshape(shape)) if value is not None else context.emit(relax.op.reshape(x, shape))


def transposed(context: NodeContext, x: Any) -> Any:
    """Return a matrix's transpose."""
    value = constant_value(x)
    if value is not None:
        return const(np.ascontiguousarray(value.T))
    return context.emit(relax.op.permute_dims(x, [1, 0]))


def tiled_weight(context: NodeContext, x: Any) -> Any:
    """Return a matrix as `kernels.layers.recurrent.tiled` lays it out."""
    value = constant_value(x)
    if value is not None:
        return const(tiled(value))
    columns, hidden = needed_shape(x)
    tiles = -(-columns // TILE)
    if missing := tiles * TILE - columns:
        zeros = context.emit(relax.op.broadcast_to(full_rank(0, 2, dtype_of(x)), (missing, hidden)))
        x = context.emit(relax.op.concat([x, zeros], 0))
    x = context.emit(relax.op.reshape(x, (tiles, TILE, hidden)))
    return context.emit(relax.op.permute_dims(x, [0, 2, 1]))
