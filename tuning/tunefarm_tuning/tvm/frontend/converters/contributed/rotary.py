"""Converters of words that are turned by angles of their position (rotary embeddings), as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import (
    heads_apart,
    heads_together,
    reshaped,
    size_of,
    sliced,
)
from tunefarm_tuning.tvm.frontend.node_context import NodeContext, UnsupportedFormError, int64s, rank_of


def convert_rotary_embedding(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `RotaryEmbedding` of ONNX Runtime; ONNX's has its inputs in another order."""
    x, positions, cos, sin = inputs[:4]
    if attributes.get("is_packed_batching", 0) or attributes.get("scale", 1.0) != 1.0:
        raise UnsupportedFormError("packed batches and scales are not supported")
    has_heads = rank_of(x) == 4
    if not has_heads:
        heads = int(attributes.get("num_heads", 0)) or size_of(x, -1) // (2 * size_of(cos, -1))
        x = heads_apart(context, x, heads)
    if rank_of(positions) == 1:  # of the first word
        steps = np.broadcast_to(np.arange(size_of(x, 2)), (size_of(x, 0), size_of(x, 2)))
        positions = context.node("Add", int64s(steps), positions)
    y = turned(context, x, (positions, cos, sin), interleaved=bool(attributes.get("interleaved", 0)))
    return y if has_heads else heads_together(context, y)


def turned(context: NodeContext, x: Any, angles: tuple[Any, Any, Any], *, interleaved: bool) -> Any:
    """Return ``(batch, heads, words, size of a head)``, turned.

    The angles are the position of each word, ``(batch, words)``, and cosines and sines by position. These may be fewer than half of
    a head: the rest of it stays as it is. If `interleaved`, neighbours are turned together, else the first half with the second.
    """
    positions, cos, sin = angles
    size, half = size_of(x, -1), size_of(cos, -1)
    cos, sin = (
        context.node("Unsqueeze", context.node("Gather", table, positions, axis=0), int64s([1]))
        for table in (cos, sin)
    )
    both = x if 2 * half == size else sliced(context, x, 0, 2 * half)
    if interleaved:
        pairs = reshaped(context, both, [0, 0, 0, half, 2])
        a, b = (context.node("Gather", pairs, int64s(side), axis=4) for side in (0, 1))
    else:
        a, b = sliced(context, both, 0, half), sliced(context, both, half, 2 * half)
    first = context.node("Sub", context.node("Mul", a, cos), context.node("Mul", b, sin))
    second = context.node("Add", context.node("Mul", b, cos), context.node("Mul", a, sin))
    if interleaved:
        columns = [context.node("Unsqueeze", part, int64s([4])) for part in (first, second)]
        parts = [reshaped(context, context.node("Concat", *columns, axis=4), [0, 0, 0, 2 * half])]
    else:
        parts = [first, second]
    if 2 * half < size:
        parts.append(sliced(context, x, 2 * half, size))
    return parts[0] if len(parts) == 1 else context.node("Concat", *parts, axis=3)
