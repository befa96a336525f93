"""Converters of ONNX Runtime's attention operators: products, a mask and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import (
    heads_apart,
    heads_together,
    padded,
    reshaped,
    results,
    scalar,
    size_of,
    sliced,
    split,
)
from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    int64s,
    rank_of,
)

_MASKED = -10_000.0
_INT64 = 7  # as TensorProto has it
_FLOAT = 1


def convert_attention(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Attention`, whose projections are one product."""
    x, weights, bias, mask, past, added, past_length = padded(inputs, 7)
    if past_length is not None:
        raise UnsupportedFormError("a shared buffer of keys and values is not supported")
    projected = context.node("MatMul", x, weights)
    projected = projected if bias is None else context.node("Add", projected, bias)
    return _self_attention(context, projected, (mask, past, added), attributes)


def convert_q_attention(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `QAttention`, whose projections are a product of integers."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = padded(inputs, 9)
    product = context.node("Cast", context.node("MatMulInteger", x, weights, x_zero, zero), to=_FLOAT)
    floats = context.node("Mul", product, context.node("Mul", x_scale, scale))
    return _self_attention(context, context.node("Add", floats, bias), (mask, past, None), attributes)


def _self_attention(
    context: NodeContext, projected: Any, others: tuple[Any, Any, Any], attributes: dict[str, Any]
) -> Any:
    mask, past, added = others
    if attributes.get("do_rotary", 0) or attributes.get("past_present_share_buffer", 0):
        raise UnsupportedFormError("words that it turns, and a shared buffer, are not supported")
    heads = int(attributes["num_heads"])
    sizes = [int(size) for size in attributes.get("qkv_hidden_sizes", ())] or [
        size_of(projected, -1) // 3
    ] * 3
    q, k, v = (heads_apart(context, part, heads) for part in split(context, projected, sizes))
    if past is not None:
        before = [context.node("Gather", past, int64s(number), axis=0) for number in (0, 1)]
        k, v = (context.node("Concat", *pair, axis=2) for pair in zip(before, (k, v), strict=True))
    y = _attended(context, (q, k, v), (mask, added), attributes)
    if context.outputs < 2:
        return y
    columns = [context.node("Unsqueeze", part, int64s([0])) for part in (k, v)]
    return results(context, y, context.node("Concat", *columns, axis=0))


def convert_multi_head_attention(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `MultiHeadAttention`, whose projections are done before it but for their bias."""
    q, k, v, bias, mask, added, past_k, past_v, *others = padded(inputs, 10)
    if k is None or v is None or any(x is not None for x in others) or context.outputs > 3:
        raise UnsupportedFormError(
            "packed projections, a shared buffer, and scores as a result are not supported"
        )
    heads, has_heads = int(attributes["num_heads"]), rank_of(k) == 4
    if bias is not None:
        width = size_of(q, -1)
        parts = split(context, bias, [width, width, size_of(bias, 0) - 2 * width])
        q = context.node("Add", q, parts[0])
        if not has_heads:  # else they are another sequence's, and complete
            k, v = context.node("Add", k, parts[1]), context.node("Add", v, parts[2])
    q = heads_apart(context, q, heads)
    if not has_heads:
        k, v = heads_apart(context, k, heads), heads_apart(context, v, heads)
    if past_k is not None:
        k, v = (context.node("Concat", *pair, axis=2) for pair in ((past_k, k), (past_v, v)))
    return results(context, _attended(context, (q, k, v), (mask, added), attributes), k, v)


def scores_of(context: NodeContext, q: Any, k: Any, attributes: dict[str, Any]) -> Any:
    """Return the scaled products of queries and keys, ``(batch, heads, words, words)``."""
    scale = float(attributes.get("scale", 0.0)) or 1 / math.sqrt(size_of(q, -1))
    scaled = context.node("Mul", q, scalar(scale, q))
    return context.node("MatMul", scaled, context.node("Transpose", k, perm=[0, 1, 3, 2]))


def _attended(
    context: NodeContext, parts: tuple[Any, Any, Any], masks: tuple[Any, Any], attributes: dict[str, Any]
) -> Any:
    """Return ``softmax(q @ k.T + masks) @ v`` with the heads side by side."""
    q, k, v = parts
    mask, added = masks
    scores = scores_of(context, q, k, attributes)
    for shade in (_shade(context, mask, q, k, attributes), _causal(q, k, attributes), added):
        scores = scores if shade is None else context.node("Add", scores, shade)
    shares = context.node("Softmax", scores, axis=-1)
    return heads_together(context, context.node("MatMul", shares, v))


def _shade(context: NodeContext, mask: Any, q: Any, k: Any, attributes: dict[str, Any]) -> Any:
    """Return what is added to scores for a mask: of words, of pairs of words, or by where a sample's words end and begin."""
    if mask is None:
        return None
    rank = rank_of(mask)
    if rank == 1:
        batch, given = size_of(q, 0), size_of(mask, 0)
        if given not in (batch, 2 * batch):
            raise UnsupportedFormError("a mask of this form is not supported")
        positions = int64s(np.arange(size_of(k, 2))[None])
        places = reshaped(context, context.node("Cast", mask, to=_INT64), [-1, 1])
        seen = context.node("Less", positions, sliced(context, places, 0, batch, axis=0))
        if given > batch:
            begins = sliced(context, places, batch, given, axis=0)
            seen = context.node("And", seen, context.node("GreaterOrEqual", positions, begins))
    elif rank in (2, 3):
        seen = context.node("Greater", mask, scalar(0, mask))
    else:
        raise UnsupportedFormError("a mask of this form is not supported")
    hidden = scalar(attributes.get("mask_filter_value", _MASKED), q)
    shade = context.node("Where", seen, scalar(0, q), hidden)
    return context.node("Unsqueeze", shade, int64s([1] if rank == 3 else [1, 2]))


def _causal(q: Any, k: Any, attributes: dict[str, Any]) -> Any:
    """Return what hides the words behind each word; None if nothing does."""
    if not attributes.get("unidirectional", 0):
        return None
    words, extent = size_of(q, 2), size_of(k, 2)
    behind = np.triu(np.ones((words, extent), bool), extent - words + 1)
    dtype = dtype_of(q)
    return const(np.where(behind, np.finfo(dtype).min, 0).astype(dtype)[None, None])
