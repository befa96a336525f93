"""How much timings scatter, told from the samples themselves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""

_FEWEST = 3


def relative_noise(samples_sec: Sequence[float]) -> float | None:
    """Return the samples' standard deviation relative to their median; None for fewer than three samples.

    Robust: it is estimated from the median absolute deviation, so a few interrupted samples do not change it.
    """
    if len(samples_sec) < _FEWEST:
        return None
    middle = median(samples_sec)
    if not middle > 0:
        return None
    return _TO_SIGMA * median(abs(sample - middle) for sample in samples_sec) / middle
