"""How long a kernel is timed: briefly if it is hopeless, at length if it may be the best.

Knows neither TVM nor devices: it is given functions that time. Interruptions only ever make a sample longer, so
the fastest of a few short samples is what a candidate is judged hopeless by, never their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from tunefarm_tuning.core.latency import relative_noise

_REACH = 1.5
"""A candidate slower than the best by more than this is not worth a long timing: tuners only need to know that it is bad."""

_FIRST_REACH = 3.0
"""The same after a single call, which one interruption can double."""

_NOISE_MARGIN = 2.0
_SHORT_SAMPLES = 3
_SHORT_SEC = 1e-3
_FEWEST_SAMPLES = 3
_SHORTEST_SEC = 1e-6
"""Calls are taken to last this long at least: a device's clock may show nothing for a single one."""


class Sampler(Protocol):
    """Times a loaded kernel: after one call that is not counted, `repeat` samples of `number` calls each.

    Returns seconds per call, one per sample. `number` is raised until a sample lasts `min_repeat_ms`.
    """

    def __call__(self, *, number: int, repeat: int, min_repeat_ms: float) -> list[float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """The part of `TimingOption` that a device must know; see there.

    Attributes:
        launch_sec: What the time of a single call may have beside the kernel, which one of many in a row has not: a GPU
            waits for its launch.
    """

    repeat: int
    number: int
    min_repeat_ms: float
    max_timing_ms: float
    launch_sec: float = 0.0

    def calls(self, call_sec: float) -> int:
        """Return calls per sample for a kernel that takes `call_sec`."""
        # A little more than enough: a sample that falls short is taken again from the start.
        return max(self.number, ceil(1.1 * self.min_repeat_ms * 1e-3 / max(call_sec, _SHORTEST_SEC)))

    def samples(self, call_sec: float) -> int:
        """Return how many samples fit in `max_timing_ms`: at least three, at most `repeat`."""
        fitting = int(self.max_timing_ms * 1e-3 / max(self.calls(call_sec) * call_sec, _SHORTEST_SEC))
        return min(self.repeat, max(_FEWEST_SAMPLES, fitting))


def time_adaptively(sample: Sampler, plan: TimingPlan, rival_sec: float | None) -> tuple[list[float], bool]:
    """Return a kernel's samples, and whether the timing was cut short for being hopeless against `rival_sec`.

    One call is timed first. Three times slower than the rival ends it there. Up from 1.5 times, three short samples
    decide: it ends if the fastest of them is slower by more than 1.5 times, plus twice their relative noise.
    """
    fastest = sample(number=1, repeat=1, min_repeat_ms=0)[0]
    if rival_sec is not None:
        if fastest > _FIRST_REACH * rival_sec + plan.launch_sec:
            return [fastest], True
        if fastest > _REACH * rival_sec:
            calls = ceil(_SHORT_SEC / max(fastest, _SHORTEST_SEC))
            short = sample(number=calls, repeat=_SHORT_SAMPLES, min_repeat_ms=0)
            reach = _REACH * (1 + _NOISE_MARGIN * (relative_noise(short) or 0.0))
            if min(short) > reach * rival_sec:
                return short, True
            fastest = min(fastest, *short)
    return (
        sample(number=plan.calls(fastest), repeat=plan.samples(fastest), min_repeat_ms=plan.min_repeat_ms),
        False,
    )


def time_interleaved(samplers: Sequence[Sampler], plan: TimingPlan, rounds: int) -> list[list[float]]:
    """Return `rounds` samples of each kernel, taken in turn (A B C, A B C, ...).

    What changes slowly on a machine (its clock, its neighbours) then meets all of them alike.
    """
    calls = []
    for sample in samplers:
        first = sample(number=1, repeat=1, min_repeat_ms=0)[0]
        short = sample(number=ceil(_SHORT_SEC / max(first, _SHORTEST_SEC)), repeat=1, min_repeat_ms=0)[0]
        calls.append(plan.calls(min(first, short)))
    samples: list[list[float]] = [[] for _ in samplers]
    for _ in range(rounds):
        for kept, sample, number in zip(samples, samplers, calls, strict=True):
            kept += sample(number=number, repeat=1, min_repeat_ms=0)
    return samples
