"""Simulated annealing over a cost model's scores: thousands of chains at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray


def anneal(
    space: ConfigSpace,
    score: Callable[[IntArray], FloatArray],
    starts: IntArray,
    rng: np.random.Generator,
    *,
    steps: int,
    keep: int,
) -> IntArray:
    """Return the best rows seen on random walks that prefer to climb.

    Args:
        space: The config space of the rows.
        score: Goodness of each row, higher is better, on any scale.
        starts: The first row of each walk. Shape ``(chains, width)``.
        rng: Source of random numbers.
        steps: Length of each walk.
        keep: Rows to return, at most.

    Returns:
        Different rows, best first. Shape ``(<= keep, width)``.

    Source: ``autotvm.tuner.SimulatedAnnealingOptimizer`` (TVM v0.19).
    """
    rows, scores = starts, score(starts)
    seen_rows, seen_scores = [rows], [scores]
    spread = float(scores.std()) or 1.0
    for step in range(steps):
        temperature = spread * (1 - step / steps)
        proposed = space.mutate_rows(rows, rng)
        proposed_scores = score(proposed)
        climb = np.minimum((proposed_scores - scores) / temperature, 0.0)
        accept = rng.random(len(rows)) < np.exp(climb)
        rows = np.where(accept[:, None], proposed, rows)
        scores = np.where(accept, proposed_scores, scores)
        seen_rows.append(proposed)
        seen_scores.append(proposed_scores)
    every, every_score = np.concatenate(seen_rows), np.concatenate(seen_scores)
    # Walks revisit rows: take more rows than needed, then drop duplicates.
    best = np.argsort(-every_score, kind="stable")[: 16 * keep]
    _, first = np.unique(every[best], axis=0, return_index=True)
    return every[best[np.sort(first)[:keep]]]
