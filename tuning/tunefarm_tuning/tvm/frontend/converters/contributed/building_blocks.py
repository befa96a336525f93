"""Nodes that the converters of fused operators are made of. Shapes are written with 0 and -1, so that open dimensions stay open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    const,
    constant_value,
    dtype_of,
    int64s,
    needed_open_shape,
    rank_of,
)


def padded(inputs: Sequence[Any], count: int) -> list[Any]:
    """Return a node's inputs with None for the last ones that it omits."""
    return [*inputs, *[None] * (count - len(inputs))]


def results(context: NodeContext, *values: Any) -> Any:
    """Return the value of a node that has as many of these results as it names; a result that it does not name may be None."""
    wanted = list(values)[: context.outputs]
    if len(wanted) == 1:
        return wanted[0]
    return relax.Tuple([const(np.float32(0)) if value is None else context.emit(value) for value in wanted])


def inside_float32(converter: Converter) -> Converter:
    """Return a converter that computes float16 in float32 and rounds at the end, as one kernel of ONNX Runtime does."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        if not any(x is not None and dtype_of(x) == "float16" for x in inputs):
            return converter(context, inputs, attributes)
        wide = [x if x is None or dtype_of(x) != "float16" else _cast(context, x, "float32") for x in inputs]
        converted = converter(context, wide, attributes)
        if not isinstance(converted, relax.Tuple):
            return _cast(context, context.emit(converted), "float16")
        narrow = [_cast(context, x, "float16") if dtype_of(x) == "float32" else x for x in converted.fields]
        return relax.Tuple(narrow)

    return convert


def _cast(context: NodeContext, x: Any, dtype: str) -> Any:
    value = constant_value(x)
    return context.emit(relax.op.astype(x, dtype)) if value is None else const(value.astype(dtype))


def size_of(x: Any, axis: int) -> int:
    """Return the size of a dimension.

    Raises:
        UnsupportedFormError: If it is open.
    """
    size = needed_open_shape(x)[axis]
    if not isinstance(size, int):
        raise UnsupportedFormError(f"dimension {axis} of its input is open")
    return size


def scalar(value: float, like: Any) -> Any:
    """Return a constant of the dtype of a tensor."""
    return const(np.array(value, dtype=dtype_of(like)))


def reshaped(context: NodeContext, x: Any, shape: Sequence[int]) -> Any:
    """Return `Reshape` of a tensor."""
    return context.node("Reshape", x, int64s(shape))


def sliced(context: NodeContext, x: Any, first: int, last: int, axis: int = -1) -> Any:
    """Return ``x[..., first:last]`` along an axis."""
    return context.node("Slice", x, int64s([first]), int64s([last]), int64s([axis % rank_of(x)]))


def split(context: NodeContext, x: Any, sizes: Sequence[int]) -> list[Any]:
    """Return parts of the last dimension."""
    bounds = [0, *np.cumsum(sizes).tolist()]
    return [sliced(context, x, first, last) for first, last in pairwise(bounds)]


def heads_apart(context: NodeContext, x: Any, heads: int) -> Any:
    """Return ``(batch, words, width)`` as ``(batch, heads, words, size of a head)``."""
    apart = reshaped(context, x, [0, 0, heads, size_of(x, -1) // heads])
    return context.node("Transpose", apart, perm=[0, 2, 1, 3])


def heads_together(context: NodeContext, x: Any) -> Any:
    """Return ``(batch, heads, words, size of a head)`` as ``(batch, words, width)``."""
    width = size_of(x, 1) * size_of(x, 3)
    return reshaped(context, context.node("Transpose", x, perm=[0, 2, 1, 3]), [0, 0, width])
