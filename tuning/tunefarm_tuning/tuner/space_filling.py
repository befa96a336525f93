"""A first batch that has seen a bit of everything, for a model that knows nothing yet."""

from __future__ import annotations

import numpy as np

from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.factorization import IntArray


def space_filling_rows(space: ConfigSpace, n: int, rng: np.random.Generator, *, pool: int = 8) -> IntArray:
    """Return `n` rows that are far from each other in feature space.

    Each is the farthest from those before among a few random ones. Few, because the very farthest points of a space are
    its corners, and corners are bad kernels.

    Args:
        space: Where to draw.
        n: How many.
        rng: Where chance comes from.
        pool: Random rows to choose each from.
    """
    features = FeatureMap(space)
    drawn = space.sample_rows(rng, n * pool)
    points = features(drawn)
    spread = points.std(axis=0)
    points = (points / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    chosen = [0]
    for batch in range(1, n):
        candidates = np.arange(batch * pool, (batch + 1) * pool)
        away = ((points[candidates, None, :] - points[None, chosen, :]) ** 2).sum(axis=2).min(axis=1)
        chosen.append(int(candidates[away.argmax()]))
    return drawn[chosen]
