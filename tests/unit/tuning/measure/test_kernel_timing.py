"""How long a kernel is timed, with made-up kernels that count their calls."""

from __future__ import annotations

import pytest

from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.measure.interfaces import MeasureResult
from tunefarm_tuning.measure.kernel_timing import TimingPlan, time_adaptively, time_interleaved

PLAN = TimingPlan(repeat=10, number=1, min_repeat_ms=3.0, max_timing_ms=100.0)


class Kernel:
    """Takes `call_sec`, times the next of `factors` for every sample as long as there are some."""

    def __init__(
        self, call_sec: float, factors: tuple[float, ...] = (), log: list[Kernel] | None = None
    ) -> None:
        self.call_sec = call_sec
        self._factors = iter(factors)
        self._log = log
        self.total_sec = 0.0

    def __call__(self, *, number: int, repeat: int, min_repeat_ms: float) -> list[float]:
        assert number >= 1
        if self._log is not None:
            self._log.append(self)
        self.total_sec += self.call_sec * (1 + number * repeat)
        return [self.call_sec * next(self._factors, 1.0) for _ in range(repeat)]


def test_without_a_rival_the_timing_is_full() -> None:
    kernel = Kernel(1e-3)
    samples, truncated = time_adaptively(kernel, PLAN, None)
    assert (len(samples), truncated) == (10, False)
    assert kernel.total_sec < 0.05


def test_what_is_within_reach_is_timed_in_full() -> None:
    for ratio in (0.1, 1.0, 1.4):
        samples, truncated = time_adaptively(Kernel(1e-3), PLAN, 1e-3 / ratio)
        assert (len(samples), truncated) == (10, False)


def test_what_is_far_beyond_reach_costs_two_calls() -> None:
    kernel = Kernel(20e-3)
    samples, truncated = time_adaptively(kernel, PLAN, 1e-3)
    assert (samples, truncated) == ([20e-3], True)
    assert kernel.total_sec == pytest.approx(0.04)


def test_what_is_a_little_beyond_reach_gets_three_more_samples() -> None:
    samples, truncated = time_adaptively(Kernel(2e-3), PLAN, 1e-3)
    assert (len(samples), truncated) == (3, True)


def test_one_interrupted_call_condemns_no_kernel() -> None:
    samples, truncated = time_adaptively(Kernel(1e-3, (2.9,)), PLAN, 1e-3)
    assert (len(samples), truncated) == (10, False)
    samples, truncated = time_adaptively(Kernel(1e-3, (2.0, 2.0, 1.2, 1.8)), PLAN, 1e-3)
    assert (len(samples), truncated) == (10, False)


def test_the_reach_grows_with_the_noise() -> None:
    steady = time_adaptively(Kernel(1e-3, (2.0, 1.7, 1.7, 1.7)), PLAN, 1e-3)
    noisy = time_adaptively(Kernel(1e-3, (2.0, 1.7, 2.2, 2.7)), PLAN, 1e-3)
    assert steady[1]
    assert not noisy[1]


def test_long_kernels_get_fewer_samples_but_three() -> None:
    assert len(time_adaptively(Kernel(20e-3), PLAN, None)[0]) == 5
    assert len(time_adaptively(Kernel(1.0), PLAN, None)[0]) == 3
    few = TimingPlan(repeat=2, number=1, min_repeat_ms=3.0, max_timing_ms=100.0)
    assert len(time_adaptively(Kernel(1.0), few, None)[0]) == 2


def test_a_clock_that_shows_nothing_is_no_reason_to_call_for_ever() -> None:
    kernel = Kernel(2e-6, (0.0,))
    assert time_adaptively(kernel, PLAN, None) == ([2e-6] * 10, False)
    assert kernel.total_sec < 1.0


def test_interleaved_samples_are_taken_in_turn() -> None:
    log: list[Kernel] = []
    kernels = [Kernel(sec, log=log) for sec in (1e-3, 2e-3, 3e-6)]
    samples = time_interleaved(kernels, PLAN, rounds=4)
    assert samples == [[k.call_sec] * 4 for k in kernels]
    assert log[-12:] == kernels * 4


def test_noise_is_robust_and_relative() -> None:
    assert relative_noise([]) is None
    assert relative_noise([1.0, 2.0]) is None
    assert relative_noise([2.0] * 5) == 0
    assert relative_noise([1.0, 1.1, 0.9, 1.0, 50.0]) == pytest.approx(0.14826)
    assert MeasureResult(run_sec=0.0, samples_sec=(1e-3, 1.1e-3, 0.9e-3)).noise == pytest.approx(0.14826)
    assert MeasureResult(run_sec=0.0).noise is None
