"""Timing of kernels: briefly if a kernel is hopeless, longer if it may be the best, in turns if two are compared.

Knows neither TVM nor devices: it is given functions that time. An interruption only makes a sample longer, so a candidate is
judged hopeless by the fastest of a few short samples, never by their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from tunefarm_tuning.core.latency import relative_noise

_HOPELESS_RATIO = 1.5
"""A candidate slower than the best by more than this is not timed for long: tuners only need to know that it is bad."""
_HOPELESS_FIRST_CALL_RATIO = 3.0
"""The same ratio after a single call, which one interruption can double."""
_NOISE_MARGIN = 2.0
_SHORT_SAMPLES = 3
_SHORT_SAMPLE_SEC = 1e-3
_MIN_SAMPLES = 3
_MIN_CALL_SEC = 1e-6
"""A call counts as at least this long: a device's clock may show zero for a single call."""

_ROUNDS = 5
_SAMPLE_SEC = 0.01
_CLEAR_RATIO = 3.0
_CLEAR_SEC = 1e-3
_MAX_CALLS = 1000
CALLS_ALONE = 3
"""Single calls of an untuned kernel that is not timed in turn: one alone may have been disturbed."""
LONG_SEC = 0.3
"""A kernel that takes longer is called once."""

METHOD = (
    f"Each kernel by itself, on random inputs, tuned and untuned in turn: {_ROUNDS} samples each. A sample is "
    f"the mean of as many consecutive calls as take {_SAMPLE_SEC * 1e3:g} ms (1 to {_MAX_CALLS}). If the first call of an "
    f"untuned kernel takes over {_CLEAR_SEC * 1e3:g} ms and over {_CLEAR_RATIO:g} times as long as the tuned kernel, "
    f"or if there is no tuned kernel, the samples are {CALLS_ALONE} single calls; "
    f"a kernel that takes over {LONG_SEC:g} s is called once. "
    "By itself, a kernel finds its data in the caches more often than within the network."
)
"""How `time_tuned_and_untuned` measures, for people."""


class Sampler(Protocol):
    """Times a loaded kernel: after one call that does not count, `repeat` samples of `number` calls each.

    Returns seconds per call, one value per sample. `number` is raised until a sample lasts `min_repeat_ms`.
    """

    def __call__(self, *, number: int, repeat: int, min_repeat_ms: float) -> list[float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """The part of `TimingOption` that a device must know; see there for the first four attributes.

    Attributes:
        launch_sec: Seconds that a single call takes beside the kernel, and many calls in a row do not: a GPU's launch.
    """

    repeat: int
    number: int
    min_repeat_ms: float
    max_timing_ms: float
    launch_sec: float = 0.0

    def calls(self, call_sec: float) -> int:
        """Return calls per sample for a kernel that takes `call_sec`."""
        # A little more than needed: a sample that is too short is taken again from the start.
        return max(self.number, ceil(1.1 * self.min_repeat_ms * 1e-3 / max(call_sec, _MIN_CALL_SEC)))

    def samples(self, call_sec: float) -> int:
        """Return how many samples fit in `max_timing_ms`: at least three, at most `repeat`."""
        fitting = int(self.max_timing_ms * 1e-3 / max(self.calls(call_sec) * call_sec, _MIN_CALL_SEC))
        return min(self.repeat, max(_MIN_SAMPLES, fitting))


def time_adaptively(sample: Sampler, plan: TimingPlan, rival_sec: float | None) -> tuple[list[float], bool]:
    """Time a kernel; stop early if it is hopeless against `rival_sec`.

    One call is timed first. If it takes three times as long as the rival, timing ends. If it takes 1.5 times as long, three
    short samples follow: timing ends if the fastest of them takes more than 1.5 times as long, plus twice their relative noise.

    Args:
        sample: Times the kernel.
        plan: How long to time it.
        rival_sec: Seconds per call of the best kernel known for the task; None if there is none.

    Returns:
        The samples in seconds per call, and whether timing ended early.
    """
    fastest = sample(number=1, repeat=1, min_repeat_ms=0)[0]
    if rival_sec is not None:
        if fastest > _HOPELESS_FIRST_CALL_RATIO * rival_sec + plan.launch_sec:
            return [fastest], True
        if fastest > _HOPELESS_RATIO * rival_sec:
            calls = ceil(_SHORT_SAMPLE_SEC / max(fastest, _MIN_CALL_SEC))
            short = sample(number=calls, repeat=_SHORT_SAMPLES, min_repeat_ms=0)
            reach = _HOPELESS_RATIO * (1 + _NOISE_MARGIN * (relative_noise(short) or 0.0))
            if min(short) > reach * rival_sec:
                return short, True
            fastest = min(fastest, *short)
    return (
        sample(number=plan.calls(fastest), repeat=plan.samples(fastest), min_repeat_ms=plan.min_repeat_ms),
        False,
    )


def time_interleaved(samplers: Sequence[Sampler], plan: TimingPlan, rounds: int) -> list[list[float]]:
    """Return `rounds` samples of each kernel in seconds per call, taken in turn (A B C, A B C, ...).

    What changes slowly on a machine (its clock, other load) then affects all kernels equally.
    """
    calls = []
    for sample in samplers:
        first = sample(number=1, repeat=1, min_repeat_ms=0)[0]
        short = sample(number=ceil(_SHORT_SAMPLE_SEC / max(first, _MIN_CALL_SEC)), repeat=1, min_repeat_ms=0)[
            0
        ]
        calls.append(plan.calls(min(first, short)))
    samples: list[list[float]] = [[] for _ in samplers]
    for _ in range(rounds):
        for kernel_samples, sample, number in zip(samples, samplers, calls, strict=True):
            kernel_samples += sample(number=number, repeat=1, min_repeat_ms=0)
    return samples


def time_tuned_and_untuned(
    time_tuned: Callable[[int], float],
    tuned_sec: float,
    time_untuned: Callable[[int], float],
    untuned_sec: float,
) -> tuple[list[float], list[float]]:
    """Time a tuned and an untuned kernel in turns, so that a busy machine slows both.

    `time_tuned` and `time_untuned` return the mean seconds of a number of calls; the others are the seconds of the first calls.

    If the first calls show that the untuned kernel is much slower (a plain convolution takes a hundred times as long as a tuned
    one), it is called `CALLS_ALONE` times, the first call included; once if that takes over `LONG_SEC`.

    Returns:
        Samples of the tuned and of the untuned kernel, in seconds per call.
    """
    clear = untuned_sec > _CLEAR_RATIO * tuned_sec and untuned_sec > _CLEAR_SEC
    tuned: list[float] = []
    untuned: list[float] = [untuned_sec] if clear else []
    single = CALLS_ALONE if untuned_sec <= LONG_SEC else 1
    for _ in range(_ROUNDS):
        tuned.append(time_tuned(_calls(tuned_sec)))
        if not clear:
            untuned.append(time_untuned(_calls(untuned_sec)))
        elif len(untuned) < single:
            untuned.append(time_untuned(1))
    return tuned, untuned


def _calls(call_sec: float) -> int:
    return max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(call_sec, 1e-9))))
