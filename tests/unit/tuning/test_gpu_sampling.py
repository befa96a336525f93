"""Samples of a GPU: taken again while it is held back, refused while it is another's, cold where the network is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tunefarm_tuning.errors import DeviceLostError
from tunefarm_tuning.gpu_state import GpuState
from tunefarm_tuning.tvm_side.gpu_sampling import LAUNCH_SEC, cold_sampler, flush_bytes, take_steadily

WELL = GpuState(clock_mhz=1980.0, temperature_celsius=41.0)
HOT = GpuState(clock_mhz=1980.0, temperature_celsius=90.0, throttle=("thermal",))
SLOW = GpuState(clock_mhz=600.0)
SHARED = GpuState(clock_mhz=1980.0, used_by="python3 (pid 7)")


class Gpu:
    """In the states of a list, one after the other; the last one stays. A sample takes a second."""

    def __init__(self, *states: GpuState) -> None:
        self.states = list(states)
        self.now = 0.0
        self.waited: list[float] = []
        self.taken = 0

    def read(self) -> GpuState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def take(self) -> int:
        self.now += 1.0
        self.taken += 1
        return self.taken

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited.append(seconds)

    def steadily(self, *, within_sec: float = 100.0) -> tuple[int, dict[str, object]]:
        return take_steadily(
            self.read,
            self.take,
            clock_mhz=1980.0,
            within_sec=within_sec,
            wait=self.wait,
            clock=lambda: self.now,
        )


def test_a_gpu_that_is_well_is_timed_once() -> None:
    gpu = Gpu(GpuState(clock_mhz=345.0), WELL)  # it was asleep before
    assert gpu.steadily() == (1, {**WELL.to_json(), "before": {"clock_mhz": 345.0}})


def test_samples_of_a_throttled_gpu_are_taken_again() -> None:
    for bad in (HOT, SLOW):
        gpu = Gpu(WELL, bad, WELL, WELL)
        taken, facts = gpu.steadily()
        assert (taken, facts["retaken"], len(gpu.waited)) == (2, 1, 1)
        assert "slowed" not in facts


def test_it_is_said_where_that_did_not_help() -> None:
    gpu = Gpu(HOT)
    taken, facts = gpu.steadily()
    assert (taken, facts["retaken"], facts["slowed"]) == (3, 2, "throttled: thermal")
    assert facts["temperature_celsius"] == 90.0
    # No longer than there is time for.
    gpu = Gpu(SLOW)
    taken, facts = gpu.steadily(within_sec=2.0)
    assert taken == 1
    assert facts["slowed"] == "its clock was 600 MHz, 1980 at calibration"


def test_a_gpu_that_is_shared_is_no_place_to_measure() -> None:
    assert Gpu(WELL, SHARED, WELL, WELL).steadily()[0] == 2
    with pytest.raises(DeviceLostError, match=r"the GPU is used by python3 \(pid 7\)"):
        Gpu(SHARED).steadily()


def evaluator(*, call: float, cold: float, launch: float) -> Callable[..., list[float]]:
    def evaluate(*, number: int, repeat: int, cache_flush_bytes: int) -> list[float]:
        assert number == 1 or not cache_flush_bytes, "only the first of several finds the cache empty"
        once = (cold if cache_flush_bytes else call) + (launch if number == 1 else 0.0)
        return [once] * repeat

    return evaluate


def test_cold_calls_are_timed_by_themselves() -> None:
    told: list[float] = []
    sample = cold_sampler(evaluator(call=10e-6, cold=14e-6, launch=5e-6), flush=1 << 20, warm=told.append)
    for _ in range(2):
        assert sample(number=300, repeat=3, min_repeat_ms=3) == pytest.approx([14e-6] * 3)
        assert sample(number=1, repeat=1, min_repeat_ms=0) == pytest.approx([14e-6])
    assert told == [10e-6], "once a kernel"


def test_no_more_is_taken_off_than_a_launch_takes() -> None:
    (slow,) = cold_sampler(evaluator(call=1e-3, cold=2e-3, launch=1e-3), flush=1 << 20)(
        number=1, repeat=1, min_repeat_ms=0
    )
    assert slow == pytest.approx(3e-3 - LAUNCH_SEC)
    (odd,) = cold_sampler(evaluator(call=1e-3, cold=5e-4, launch=0.0), flush=1 << 20)(
        number=1, repeat=1, min_repeat_ms=0
    )
    assert odd == 1e-3, "nothing is faster for finding less in its cache"


def test_the_whole_cache_is_flushed() -> None:
    assert flush_bytes(50 << 20) == 100 << 20
    assert flush_bytes(None) == flush_bytes(0) == 128 << 20
    assert flush_bytes(1 << 40) == 1 << 30
