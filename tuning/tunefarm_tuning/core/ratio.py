"""`Ratio`: how many times as fast one thing is as another, with the interval that measurements leave open."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import mean, median

from tunefarm_text.quantities import TIGHT
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.latency import Latency

_RESAMPLES = 400
_OUTSIDE = 0.025
_LEAST_SAMPLES = 5
"""With fewer samples, a bootstrap knows too few values: the interval spans all of them."""


_NARROWNESS = 4.0
_MOST_ALIKE = 0.95
_LEAST_INDEPENDENT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(JsonFields):
    """A ratio of two latencies.

    Attributes:
        value: Ratio of the medians.
        low: Lower end of its interval; None if there is a single sample, which tells no interval.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_tight(self) -> bool:
        """Whether the interval is so narrow that `value` says it all."""
        return self.low is not None and self.high is not None and self.high <= TIGHT * self.low


def speedup(slow: Latency, fast: Latency) -> Ratio:
    """Return how many times as fast `fast` is as `slow`: the ratio of the medians, and its 95 % interval.

    The interval is a bootstrap's. If other work slowed the samples (`Disturbance.slowdown`), neither latency is known better than
    that: each end moves by as much as the one that would move it was slowed. One measurement beside itself is 1, whatever disturbed
    it: an artifact without tuned kernels is the untuned network, which is timed once.
    """
    if slow == fast:
        return Ratio(value=1.0, low=1.0, high=1.0)
    low, high = _interval(slow.samples_sec, fast.samples_sec)
    value = slow.median_sec / fast.median_sec
    if low is None or high is None:
        return Ratio(value=value)
    return Ratio(value=value, low=low / slow.slowdown, high=high * fast.slowdown)


def bounds_sec(latency: Latency) -> tuple[float, float] | None:
    """Return the 95 % interval of a latency in seconds, as `speedup` has those of ratios; None if there is a single sample."""
    second = Latency.of([1.0] * len(latency.samples_sec), latency.threads)
    interval = speedup(latency, second)
    return None if interval.low is None or interval.high is None else (interval.low, interval.high)


def speedups(latency: Mapping[str, Latency]) -> dict[str, Ratio]:
    """Return the speed-up of ``"tuned"`` over each other latency, by its name."""
    tuned = latency["tuned"]
    return {name: speedup(other, tuned) for name, other in latency.items() if name != "tuned"}


@lru_cache(maxsize=4096)
def _interval(
    slow_sec: tuple[float, ...], fast_sec: tuple[float, ...]
) -> tuple[float, float] | tuple[None, None]:
    if min(len(slow_sec), len(fast_sec)) == 1:
        return None, None
    if min(len(slow_sec), len(fast_sec)) < _LEAST_SAMPLES:
        return min(slow_sec) / max(fast_sec), max(slow_sec) / min(fast_sec)
    value, count = median(slow_sec) / median(fast_sec), min(len(slow_sec), len(fast_sec))
    independent = _independent(slow_sec, fast_sec)
    length = min(max(1, round(count ** (1 / 3)), round(count / independent)), max(1, count // 3))
    rng = random.Random(0)  # noqa: S311  (a sample, not a secret)
    ratios = sorted(_resampled(slow_sec, fast_sec, length, rng) for _ in range(_RESAMPLES))
    outside = int(_OUTSIDE * _RESAMPLES)
    low, high = min(ratios[outside], value), max(ratios[-1 - outside], value)
    # The bootstrap of few samples is too narrow: T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015.
    widening = 1 + _NARROWNESS / independent
    return value * (low / value) ** widening, value * (high / value) ** widening


def _independent(slow_sec: Sequence[float], fast_sec: Sequence[float]) -> float:
    """Return how many independent samples tell as much as these, in which a disturbance may last for several blocks.

    From the autocorrelation of neighbours, without the bias that it has in few samples: F. H. C. Marriott, J. A. Pope, "Bias in the
    estimation of autocorrelations", 1954.
    """
    if len(slow_sec) == len(fast_sec):
        return _effective([log(slow / fast) for slow, fast in zip(slow_sec, fast_sec, strict=True)])
    return min(_effective([log(sec) for sec in samples]) for samples in (slow_sec, fast_sec))


def _effective(logs: Sequence[float]) -> float:
    count, middle = len(logs), mean(logs)
    spread = sum((value - middle) ** 2 for value in logs)
    if not spread:
        return float(count)
    alike = sum((a - middle) * (b - middle) for a, b in itertools.pairwise(logs)) / spread
    alike = min(max(alike + (1 + 4 * alike) / count, 0.0), _MOST_ALIKE)
    return max(_LEAST_INDEPENDENT, count * (1 - alike) / (1 + alike))


def _resampled(
    slow_sec: Sequence[float], fast_sec: Sequence[float], length: int, rng: random.Random
) -> float:
    """Return the ratio of the medians of drawn samples: of drawn blocks, if there is a sample of each in every block."""
    slow_blocks = _drawn(len(slow_sec), length, rng)
    fast_blocks = slow_blocks if len(slow_sec) == len(fast_sec) else _drawn(len(fast_sec), length, rng)
    return median(slow_sec[block] for block in slow_blocks) / median(fast_sec[block] for block in fast_blocks)


def _drawn(count: int, length: int, rng: random.Random) -> list[int]:
    """Return drawn blocks, in runs of neighbours: what disturbs a block often disturbs the next one, too.

    The circular block bootstrap: D. N. Politis, J. P. Romano, "A circular block-resampling procedure for stationary data", 1992.
    """
    starts = rng.choices(range(count), k=-(-count // length))
    return [(start + step) % count for start in starts for step in range(length)][:count]
