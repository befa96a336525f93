"""Latencies: raw samples, their median and noise. Wait until nothing disturbs the next timing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from tunefarm_tuning.core.json_fields import JsonFields, fields_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(JsonFields):
    """Seconds per inference.

    Attributes:
        samples_sec: Samples in measuring order, at least one. Each is the mean of as many inferences as the clock
            needs.
        threads: Number of threads of the kernels.
        inferences: Number of inferences that each sample is the mean of; empty if unknown.
    """

    samples_sec: tuple[float, ...]
    threads: int
    inferences: tuple[int, ...] = ()

    @property
    def median_sec(self) -> float:
        """Median of the samples, in seconds."""
        return median(self.samples_sec)

    def to_json(self) -> dict[str, Any]:
        return {"median_sec": self.median_sec, **fields_to_json(self)}

    @classmethod
    def of(cls, samples_sec: Iterable[float], threads: int, inferences: Iterable[int] = ()) -> Self:
        """Make a latency of any iterables of samples, in seconds, and of their numbers of inferences."""
        return cls(
            samples_sec=tuple(float(sample) for sample in samples_sec),
            threads=threads,
            inferences=tuple(inferences),
        )


_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
_MIN_SAMPLES = 3


def relative_noise(samples_sec: Sequence[float]) -> float | None:
    """Return the samples' standard deviation relative to their median; None for fewer than three samples.

    Robust: it is estimated from the median absolute deviation, so a few interrupted samples do not change it.
    """
    if len(samples_sec) < _MIN_SAMPLES:
        return None
    middle = median(samples_sec)
    if not middle > 0:
        return None
    return _TO_SIGMA * median(abs(sample - middle) for sample in samples_sec) / middle


_IDLE_INTERVAL_SEC = 0.02
_IDLE_CORES = 0.1
_IDLE_TIMEOUT_SEC = 3.0


def wait_until_idle(longest_sec: float = _IDLE_TIMEOUT_SEC) -> None:
    """Return once this process's threads use almost no processor time, or after `longest_sec`.

    After a call, ONNX Runtime's threads wait for more work on all cores for tens of milliseconds, TVM's for a tenth of a
    second by default. Timings of another process would otherwise share cores with them.
    """
    until = time.monotonic() + longest_sec
    while time.monotonic() < until:
        began, spent = time.monotonic(), time.process_time()
        time.sleep(_IDLE_INTERVAL_SEC)
        if time.process_time() - spent < _IDLE_CORES * (time.monotonic() - began):
            return
