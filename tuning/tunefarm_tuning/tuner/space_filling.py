"""A first batch that has seen a bit of everything, for a model that knows nothing yet."""

from __future__ import annotations

import numpy as np

from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.gpu_tiling import draw_fitting
from tunefarm_tuning.space.knob import Knob


def space_filling_rows(space: ConfigSpace, n: int, rng: np.random.Generator) -> IntArray:
    """Return a Latin hypercube of `n` rows: every knob's choices, in canonical order, are covered evenly.

    Points far apart from each other would cover more of the space, but they are its corners, and corners are bad
    kernels: with them the first batch is worse than a random one.

    Args:
        space: Where to draw.
        n: How many; two of them may be equal in a small space.
        rng: Where chance comes from.
    """
    rows = np.zeros((n, space.width), dtype=np.int64)
    rows[:, 0] = rng.permutation(n) % len(space.sketches)
    strata = np.stack([rng.permutation(n) for _ in range(space.width)], axis=1)
    quantiles = (strata + rng.random(strata.shape)) / n
    for number, sketch in enumerate(space.sketches):
        chosen = np.flatnonzero(rows[:, 0] == number)
        for column, knob in enumerate(sketch.knobs, start=1):
            rows[chosen, column] = _at_quantiles(knob, quantiles[chosen, column])
    if space.gpu:  # next to nothing of such a plan is legal there
        rows = draw_fitting(space, rows, lambda count: space.sample_rows(rng, count))
    return rows


def _at_quantiles(knob: Knob, quantiles: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> IntArray:
    if not knob.weights:
        return np.asarray(quantiles * len(knob), dtype=np.int64)
    steps = np.cumsum(knob.weights) / sum(knob.weights)
    return np.minimum(np.searchsorted(steps, quantiles, side="right"), len(knob) - 1).astype(np.int64)
