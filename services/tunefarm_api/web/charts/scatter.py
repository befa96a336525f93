"""The scatter plot of a task's trials, reduced to as many points as a screen can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

MOST_POINTS = 2000

_OK = "ok"

Ends = Sequence[tuple[str, float | None]]


def scatter(ends: Ends) -> dict[str, Any]:
    """Return the points: every trial that was the best so far, and of the others as many as fit, evenly.

    Costs are in milliseconds; a failure has none, and is drawn at the upper edge.
    """
    records = set(_records(ends))
    stride = max(-(-len(ends) // MOST_POINTS), 1)
    shown = [index for index in range(len(ends)) if index % stride == 0 or index in records]
    best: list[float | None] = []
    so_far: float | None = None
    for index in shown:
        cost = ends[index][1]
        if index in records and cost is not None:
            so_far = cost * 1e3
        best.append(so_far)
    return {
        "trial": [index + 1 for index in shown],
        "ms": [None if (cost := ends[index][1]) is None else cost * 1e3 for index in shown],
        "failed": [ends[index][0] != _OK for index in shown],
        "best": best,
        "trials": len(ends),
        "every": stride,
    }


def histogram(ends: Ends) -> list[tuple[str, int, float]]:
    """Return outcome, count and share; what works first, then the most frequent."""
    counts = Counter(outcome for outcome, _ in ends)
    ordered = sorted(counts.items(), key=lambda item: (item[0] != _OK, -item[1], item[0]))
    return [(outcome, count, count / len(ends)) for outcome, count in ordered]


def _records(ends: Ends) -> list[int]:
    indices: list[int] = []
    best = float("inf")
    for index, (_, cost) in enumerate(ends):
        if cost is not None and cost < best:
            best = cost
            indices.append(index)
    return indices
