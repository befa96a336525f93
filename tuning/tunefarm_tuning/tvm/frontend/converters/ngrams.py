"""The converter of `TfIdfVectorizer`: how often each n-gram of a list occurs among the numbers of a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    full_rank,
    needed_shape,
    text,
)


def convert_tf_idf(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `TfIdfVectorizer` of integers."""
    pool = attributes.get("pool_int64s")
    if pool is None:
        raise UnsupportedFormError("a pool of strings is not supported")
    shape = needed_shape(inputs[0])
    rows, size = shape if len(shape) == 2 else (1, *shape)
    x = context.emit(relax.op.reshape(inputs[0], (rows, size)))
    starts = [*attributes["ngram_counts"], len(pool)]
    parts, grams = [], 0
    for n, (first, last) in enumerate(itertools.pairwise(starts), start=1):
        wanted = np.array(pool[first:last], np.int64).reshape(-1, n)
        grams += len(wanted)
        if not len(wanted):
            continue
        is_counted = attributes["min_gram_length"] <= n <= attributes["max_gram_length"]
        skips = range(attributes["max_skip_count"] + 1 if n > 1 else 1) if is_counted else range(0)
        parts.append(_counts(context, x, wanted, [skip + 1 for skip in skips]))
    counts = context.emit(relax.op.concat(parts, axis=1)) if len(parts) > 1 else parts[0]
    places = attributes["ngram_indexes"]
    select = np.zeros((grams, max(places) + 1), np.float32)
    select[np.arange(grams), places] = 1
    mode = text(attributes, "mode", "TF")
    if mode != "TF":
        counts = (
            counts if mode == "TFIDF" else context.emit(relax.op.minimum(counts, full_rank(1, 2, "float32")))
        )
        select *= np.array(attributes.get("weights", [1.0] * grams), np.float32)[:, None]
    y = context.emit(relax.op.matmul(counts, const(select)))
    return relax.op.reshape(y, (*shape[:-1], select.shape[1]))


def _counts(context: NodeContext, x: Any, wanted: np.ndarray[Any, Any], steps: Sequence[int]) -> Any:
    """Return how often each n-gram occurs in each row with its numbers some steps apart: ``[rows, n-grams]``."""
    rows, size = needed_shape(x)
    grams, n = wanted.shape
    total: Any = const(np.zeros((rows, grams), np.float32))
    for step in steps:
        count = size - step * (n - 1)
        if count < 1:
            continue
        match: Any = None
        for k in range(n):
            part = context.emit(relax.op.strided_slice(x, [1], [k * step], [k * step + count]))
            part = context.emit(relax.op.reshape(part, (rows, 1, count)))
            column = const(wanted[:, k].astype(dtype_of(x)).reshape(1, grams, 1))
            same = context.emit(relax.op.equal(part, column))
            match = same if match is None else context.emit(relax.op.logical_and(match, same))
        numbers = context.emit(relax.op.astype(match, "float32"))
        total = context.emit(relax.op.add(total, context.emit(relax.op.sum(numbers, axis=[2]))))
    return total
