"""How near two computations of a family are in size."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """Return how far apart the extents of two computations are: doublings, summed over the axes.

    Infinite where they have not equally many axes.
    """
    if len(one) != len(other):
        return inf
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in zip(one, other, strict=True))
