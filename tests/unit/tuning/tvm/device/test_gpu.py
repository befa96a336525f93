"""Samples on a GPU: repeated while it is throttled, refused while others use it, cold where the network is."""

from __future__ import annotations

import pytest

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.gpu.state import GpuState
from tunefarm_tuning.measure.kernel_timing import TimingPlan, time_adaptively
from tunefarm_tuning.tvm.device.gpu import LAUNCH_SEC, cold_sampler, flush_bytes, take_steadily

WELL = GpuState(clock_mhz=1980.0, temperature_celsius=41.0)
HOT = GpuState(clock_mhz=1980.0, temperature_celsius=90.0, throttle=("thermal",))
SLOW = GpuState(clock_mhz=600.0)
SHARED = GpuState(clock_mhz=1980.0, used_by="python3 (pid 7)")


class Gpu:
    """A GPU with a list of states in turn; the last one stays. A sample takes a second."""

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


def test_a_power_cap_alone_is_told_and_no_reason_to_wait() -> None:
    gpu = Gpu(GpuState(clock_mhz=1200.0, throttle=("power-cap",)))
    taken, facts = gpu.steadily()
    assert (taken, gpu.waited) == (1, [])
    assert facts["capped"] == "its clock was 1200 MHz, 1980 at calibration"
    assert not {"slowed", "retaken"} & set(facts)


def test_nothing_is_measured_on_a_shared_gpu() -> None:
    assert Gpu(WELL, SHARED, WELL, WELL).steadily()[0] == 2
    with pytest.raises(DeviceLostError, match=r"the GPU is used by python3 \(pid 7\)") as caught:
        Gpu(SHARED).steadily()
    assert caught.value.code == "device-busy"


class Evaluator:
    """The evaluator of a kernel with given times for warm and cold caches."""

    def __init__(self, *, call: float, cold: float, launch: float) -> None:
        self.call, self.cold, self.launch = call, cold, launch
        self.calls = 0

    def __call__(self, *, number: int, repeat: int, cache_flush_bytes: int) -> list[float]:
        assert number == 1 or not cache_flush_bytes, "only the first of several finds the cache empty"
        self.calls += 1 + number * repeat
        once = (self.cold if cache_flush_bytes else self.call) + (self.launch if number == 1 else 0.0)
        return [once] * repeat


def test_cold_calls_are_timed_by_themselves() -> None:
    warm_secs: list[float] = []
    evaluate = Evaluator(call=10e-6, cold=14e-6, launch=5e-6)
    sample = cold_sampler(evaluate, flush=1 << 20, warm=warm_secs.append)
    for _ in range(2):
        assert sample(number=300, repeat=3, min_repeat_ms=3) == pytest.approx([14e-6] * 3)
        assert sample(number=1, repeat=1, min_repeat_ms=0) == pytest.approx([14e-6])
    assert warm_secs == [10e-6], "once a kernel"


def test_no_more_is_taken_off_than_a_launch_takes() -> None:
    (slow,) = cold_sampler(Evaluator(call=1e-3, cold=2e-3, launch=1e-3), flush=1 << 20)(
        number=2, repeat=1, min_repeat_ms=0
    )
    assert slow == pytest.approx(3e-3 - LAUNCH_SEC)
    (odd,) = cold_sampler(Evaluator(call=1e-3, cold=5e-4, launch=0.0), flush=1 << 20)(
        number=2, repeat=1, min_repeat_ms=0
    )
    assert odd == 1e-3, "nothing is faster for finding less in its cache"


def test_a_hopeless_kernel_is_called_hardly_ever() -> None:
    plan = TimingPlan(repeat=10, number=1, min_repeat_ms=10, max_timing_ms=100, launch_sec=LAUNCH_SEC)
    slow = Evaluator(call=0.2, cold=0.2, launch=5e-6)
    samples, truncated = time_adaptively(cold_sampler(slow, flush=1 << 20), plan, 1e-3)
    assert (samples, truncated, slow.calls) == ([0.2 + 5e-6], True, 2)
    # Without a best time so far, even a slow kernel is timed, within the time of a measurement.
    samples, truncated = time_adaptively(cold_sampler(slow, flush=1 << 20), plan, None)
    assert samples == pytest.approx([0.2] * 3, rel=1e-3)
    assert not truncated
    assert slow.calls < 20


def test_the_whole_cache_is_flushed() -> None:
    assert flush_bytes(50 << 20) == 100 << 20
    assert flush_bytes(None) == flush_bytes(0) == 128 << 20
    assert flush_bytes(1 << 40) == 1 << 30
