"""Converter of `GroupQueryAttention`, which decoders call with keys and values of the words before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tunefarm_tuning.tvm.frontend.converters.contributed.attention import scores_of
from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import (
    heads_apart,
    heads_together,
    padded,
    reshaped,
    results,
    scalar,
    size_of,
    split,
)
from tunefarm_tuning.tvm.frontend.converters.contributed.rotary import turned
from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    constant_value,
    dtype_of,
    int64s,
    needed_shape,
)

_INT64 = 7  # as TensorProto has it


def convert_group_query_attention(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `GroupQueryAttention`.

    ``seqlens_k`` is the position of each sample's last word. Keys and values are written up to there, and results have zeros behind.
    """
    q, k, v, past_k, past_v, last, total, cos, sin, positions, added, *others = padded(inputs, 14)
    if any(x is not None for x in others) or context.outputs > 3 or attributes.get("smooth_softmax", 0) == 1:
        raise UnsupportedFormError("sinks, a quantised cache, and scores as a result are not supported")
    if past_k is None or constant_value(total) is None:
        raise UnsupportedFormError(
            "it needs a cache, and a total_sequence_length that is known: bind that to a value"
        )
    heads, key_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    if k is None:
        size = size_of(q, -1) // (heads + 2 * key_heads)
        q, k, v = split(context, q, [heads * size, key_heads * size, key_heads * size])
    batch, words = needed_shape(q)[:2]
    length = int(np.asarray(constant_value(total)).reshape(-1)[0])
    extent = max(size_of(past_k, 2), length)
    if added is not None and size_of(added, -1) != extent:
        raise UnsupportedFormError("its bias has another length than its cache")
    if words == length:
        first = int64s(np.zeros((batch, 1)))
    else:
        last = reshaped(context, context.node("Cast", last, to=_INT64), [batch, 1])
        first = context.node("Sub", last, int64s(words - 1))
    word_positions = context.node("Add", first, int64s(np.arange(words)[None]))
    q, k, v = (heads_apart(context, x, n) for x, n in ((q, heads), (k, key_heads), (v, key_heads)))
    if attributes.get("do_rotary", 0):
        angles = (word_positions if positions is None else positions, cos, sin)
        interleaved = bool(attributes.get("rotary_interleaved", 0))
        q, k = (turned(context, x, angles, interleaved=interleaved) for x in (q, k))
    k, v = (_written(context, old, new, first, extent) for old, new in ((past_k, k), (past_v, v)))
    masks = (_shade(context, word_positions, extent, q, attributes), added)
    return results(context, _attended(context, (q, k, v), masks, attributes), k, v)


def _attended(
    context: NodeContext, parts: tuple[Any, Any, Any], masks: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Attend with several heads of queries for each head of keys: the others' queries are further rows."""
    q, k, v = parts
    batch, heads, words, size = needed_shape(q)
    key_heads, extent = needed_shape(k)[1:3]
    scores = scores_of(context, reshaped(context, q, [batch, key_heads, -1, size]), k, attributes)
    if cap := float(attributes.get("softcap", 0.0)):
        limit = scalar(cap, scores)
        scores = context.node("Mul", context.node("Tanh", context.node("Div", scores, limit)), limit)
    scores = reshaped(context, scores, [batch, heads, words, extent])
    for mask in masks:
        scores = scores if mask is None else context.node("Add", scores, mask)
    shares = reshaped(context, context.node("Softmax", scores, axis=-1), [batch, key_heads, -1, extent])
    y = reshaped(context, context.node("MatMul", shares, v), [batch, heads, words, size])
    return heads_together(context, y)


def _shade(
    context: NodeContext, word_positions: Any, extent: int, like: Any, attributes: dict[str, Any]
) -> Any:
    """Return what hides, from each word, the words behind it, and those too far before it."""
    columns = int64s(np.arange(extent)[None, None])
    rows = context.node("Unsqueeze", word_positions, int64s([2]))
    hidden = context.node("Greater", columns, rows)
    window = int(attributes.get("local_window_size", -1))
    if window > 0:
        oldest = context.node("Sub", rows, int64s(window))
        hidden = context.node("Or", hidden, context.node("LessOrEqual", columns, oldest))
    lowest = scalar(float(np.finfo(dtype_of(like)).min), like)
    shade = context.node("Where", hidden, lowest, scalar(0, like))
    return context.node("Unsqueeze", shade, int64s([1]))


def _written(context: NodeContext, old: Any, new: Any, first: Any, extent: int) -> Any:
    """Return a cache with new entries from position `first` of each sample on, and zeros behind them."""
    batch, heads, length, size = needed_shape(old)
    words = size_of(new, 2)
    if length == 0 and words == extent:
        return new
    offsets = context.node("Sub", int64s(np.arange(extent)[None]), first)
    is_old = context.node("Less", offsets, int64s(0))
    is_new = context.node("And", context.node("Not", is_old), context.node("Less", offsets, int64s(words)))
    if words > 1:
        index = context.node("Max", context.node("Min", offsets, int64s(words - 1)), int64s(0))
        index = reshaped(context, index, [batch, 1, extent, 1])
        index = context.node("Expand", index, int64s([batch, heads, extent, size]))
        new = context.node("GatherElements", new, index, axis=2)
    kept = scalar(0, new)
    if length:
        if length < extent:
            behind = const(np.zeros((batch, heads, extent - length, size), dtype_of(new)))
            old = context.node("Concat", old, behind, axis=2)
        kept = context.node("Where", reshaped(context, is_old, [batch, 1, extent, 1]), old, kept)
    return context.node("Where", reshaped(context, is_new, [batch, 1, extent, 1]), new, kept)
