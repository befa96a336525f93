"""All trials of a task as points, cut down to what a screen can show."""

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
    shown = [place for place in range(len(ends)) if place % stride == 0 or place in records]
    best: list[float | None] = []
    so_far: float | None = None
    for place in shown:
        cost = ends[place][1]
        if place in records and cost is not None:
            so_far = cost * 1e3
        best.append(so_far)
    return {
        "trial": [place + 1 for place in shown],
        "ms": [None if (cost := ends[place][1]) is None else cost * 1e3 for place in shown],
        "failed": [ends[place][0] != _OK for place in shown],
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
    found: list[int] = []
    best = float("inf")
    for place, (_, cost) in enumerate(ends):
        if cost is not None and cost < best:
            best = cost
            found.append(place)
    return found
