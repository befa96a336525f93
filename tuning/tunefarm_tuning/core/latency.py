"""Latencies: raw samples, their median and noise. Wait until nothing disturbs the next timing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

from tunefarm_tuning.core.json_fields import OMIT_DEFAULT, JsonFields, fields_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance(JsonFields):
    """The other work on the device while something was timed.

    Attributes:
        blocks: Blocks that were timed.
        dropped: Disturbed blocks among them, whose samples do not count.
        slowdown: How many times as long the remaining samples may have taken as on a quiet device; 1 if nothing disturbed them.
        of_fastest: Whether the remaining samples are only of the fastest inferences, because other work slowed the others.
        others_cores: Cores that other work, or a hypervisor's other guests, took on average over all blocks; None if the device
            does not tell.
        steal_share: The hypervisor's part of them, as a share of all cores.
        stalled_share: Share of the time in which a runnable thread waited for a core (PSI); None if the system does not tell.
        switches_per_sec: Context switches that others forced upon the timed process.
    """

    blocks: int
    dropped: int = 0
    slowdown: float = 1.0
    of_fastest: bool = field(default=False, metadata=OMIT_DEFAULT)
    others_cores: float | None = None
    steal_share: float | None = None
    stalled_share: float | None = None
    switches_per_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(JsonFields):
    """Seconds per inference.

    Attributes:
        samples_sec: Samples in measuring order, at least one. Each is the mean of as many inferences as the clock
            needs; or of the fastest of them (`Disturbance.of_fastest`).
        threads: Number of threads of the kernels.
        inferences: Number of inferences that each sample is the mean of; empty if unknown.
        disturbance: The other work on the device meanwhile; None if nobody looked.
    """

    samples_sec: tuple[float, ...]
    threads: int
    inferences: tuple[int, ...] = ()
    disturbance: Disturbance | None = field(default=None, metadata=OMIT_DEFAULT)

    @property
    def slowdown(self) -> float:
        """`Disturbance.slowdown`; 1 if nobody looked."""
        return self.disturbance.slowdown if self.disturbance is not None else 1.0

    @property
    def is_of_fastest(self) -> bool:
        """`Disturbance.of_fastest`; False if nobody looked."""
        return self.disturbance is not None and self.disturbance.of_fastest

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


_QUIET = 1.1


def is_quiet(latencies: Sequence[Latency]) -> bool | None:
    """Return whether other work on the device hardly slowed these latencies, which were measured side by side.

    None if nobody looked: only a yardstick loop, which may have shown nothing. It slowed those of which the fastest inferences count.
    """
    if any(latency.slowdown > _QUIET or latency.is_of_fastest for latency in latencies):
        return False
    watched = [
        each.disturbance is not None and each.disturbance.others_cores is not None for each in latencies
    ]
    return True if all(watched) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAgain:
    """Another measurement of an artifact.

    Attributes:
        measured_at: When it ended, in Unix seconds.
        latency: Latencies by name: ``"tuned"`` is the artifact's, ``"untuned"``, and ``"onnxruntime"`` if it was timed.
        no_baseline: Why ONNX Runtime was not timed; empty if it was.
        baselines: What is known of the other runtimes that were asked for, by name: `BaselineFacts.to_json`.
    """

    measured_at: float
    latency: Mapping[str, Latency]
    no_baseline: str = ""
    baselines: Mapping[str, Any] = field(default_factory=dict)
