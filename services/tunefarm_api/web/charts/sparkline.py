"""The sparkline of a task's search, drawn as SVG on the server, without scripts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import log
from typing import Any

WIDTH, HEIGHT = 96, 24
_MARGIN = 2.0
_MOST_POINTS = 64


def staircase(history: Sequence[Sequence[Any]]) -> str:
    """Return the points of a polyline: best cost, on a logarithmic scale, over trials; empty where nothing ran.

    It begins with the first round that had a kernel that works, and is a mere dot if that was the last one.

    Args:
        history: ``[trials, best_cost_sec]`` after each round of the task.
    """
    steps: list[tuple[int, float]] = []
    trials = 0
    for added, best_sec in history:
        trials += int(added)
        if best_sec:
            steps.append((trials, log(best_sec)))
    if not steps:
        return ""
    if len(steps) > _MOST_POINTS:
        stride = len(steps) / (_MOST_POINTS - 1)
        steps = [steps[int(index * stride)] for index in range(_MOST_POINTS - 1)] + [steps[-1]]
    low, high = min(y for _, y in steps), max(y for _, y in steps)
    first = steps[0][0]
    across = (WIDTH - 2 * _MARGIN) / max(trials - first, 1)
    down = (HEIGHT - 2 * _MARGIN) / (high - low) if high > low else 0.0

    def point(x: float, y: float) -> str:
        return f"{_MARGIN + (x - first) * across:.1f},{HEIGHT / 2 if not down else _MARGIN + (high - y) * down:.1f}"

    points = [point(steps[0][0], steps[0][1])]
    for (_, before), (x, y) in itertools.pairwise(steps):
        points += [point(x, before), point(x, y)]
    points.append(point(trials, steps[-1][1]))
    return " ".join(points)


FALL_WIDTH, FALL_HEIGHT = 640, 160


def fall(falls: Sequence[tuple[float, float]]) -> str:
    """Return the points of a polyline: the best cost, on a logarithmic scale, over the time of day; empty for one point.

    Args:
        falls: When the best fell, and to what, oldest first.
    """
    if len(falls) < 2:
        return ""
    (first, high), (last, low) = (falls[0][0], log(falls[0][1])), (falls[-1][0], log(falls[-1][1]))
    across = (FALL_WIDTH - 2 * _MARGIN) / max(last - first, 1e-9)
    down = (FALL_HEIGHT - 2 * _MARGIN) / max(high - low, 1e-9)
    points: list[str] = []
    before = high
    for at, cost in falls:
        x = _MARGIN + (at - first) * across
        points += [
            f"{x:.1f},{_MARGIN + (high - before) * down:.1f}",
            f"{x:.1f},{_MARGIN + (high - log(cost)) * down:.1f}",
        ]
        before = log(cost)
    return " ".join(points)
