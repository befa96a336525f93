"""Whether a tuned network is slower than the untuned one, or the difference is noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.model_timing import SideBySide, compare_latency, is_slower, time_models
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Disturbance, Latency
from tunefarm_tuning.measure.baselines.baseline import Baseline, BaselineFailed, BaselineNetwork
from tunefarm_tuning.measure.baselines.runtimes import KINDS
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.reference.onnx_runtime import InputSet

QUIET = [1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99, 1.0]
LIBRARIES = {"tuned": Path("tuned.so"), "untuned": Path("untuned.so")}
BUSY = [1.0, 1.0, 1.0, 1.6, 2.0, 2.1, 1.9, 2.3]


@pytest.mark.parametrize(
    ("tuned", "untuned", "slower"),
    [
        (QUIET, QUIET, False),
        ([0.5] * 8, QUIET, False),
        ([2.0] * 8, QUIET, True),
        (BUSY, QUIET, None),  # at its best it is as fast
        (QUIET, BUSY, False),
        ([2.0 * sec for sec in BUSY], BUSY, True),
        ([2.0] * 4, QUIET, None),  # a few samples reject nothing
        ([2.0] * 8, [1.0], None),
        ([1.05, 1.3, 0.95, 1.1, 1.4, 1.0, 1.2, 0.97], QUIET, None),  # the interval holds "as fast"
    ],
)
def test_slower(tuned: list[float], untuned: list[float], slower: bool | None) -> None:
    assert is_slower(Latency.of(tuned, 1), Latency.of(untuned, 1), 1.02) is slower


@pytest.mark.parametrize(
    ("tuned_sec", "slowdown", "slower"),
    [
        (51.9, 1.05, True),  # quiet enough
        (51.9, 1.3, None),
        (51.9, 4.0, None),
        (40.0, 4.0, None),  # that it is faster is not known either
        (10.0, 4.0, False),
        (220.0, 4.0, True),
    ],
)
def test_samples_that_others_slowed_decide_only_what_no_slowdown_explains(
    tuned_sec: float, slowdown: float, slower: bool | None
) -> None:
    disturbance = Disturbance(blocks=15, dropped=10, slowdown=slowdown, others_cores=1.2)
    tuned, untuned = (replace(Latency.of([sec] * 5, 2), disturbance=disturbance) for sec in (tuned_sec, 44.0))
    assert is_slower(tuned, untuned, 1.02) is slower


@pytest.mark.parametrize(("tuned_sec", "slower"), [(1.0e-3, True), (0.81e-3, None), (0.4e-3, False)])
def test_the_fastest_inferences_of_many_samples_are_not_few(tuned_sec: float, slower: bool | None) -> None:
    disturbance = Disturbance(blocks=30, dropped=27, slowdown=1.05, of_fastest=True, others_cores=1.5)
    tuned, untuned = (
        replace(Latency.of([sec, 1.01 * sec, 0.99 * sec], 2), disturbance=disturbance)
        for sec in (tuned_sec, 0.8e-3)
    )
    assert is_slower(tuned, untuned, 1.02) is slower


class Networks:
    """Stands in for a device: each network's samples go round in a list.

    Attributes:
        timed: Samples that were taken, by the library's name.
        others_sec: Processor time that others take during each of the first `disturbed` samples of a network.
    """

    def __init__(self, *, others_sec: float = 0.0, disturbed: int = 10**9, **sec: list[float]) -> None:
        self._sec = sec
        self.others_sec = others_sec
        self.disturbed = disturbed
        self.timed: Counter[str] = Counter()

    def call(self, method: str, params: dict[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        assert timeout_sec > 0
        if method == "yardstick_loop":
            return {"loop_sec": None}
        name = Path(params["path"]).stem
        samples = self._sec[name]
        sec = samples[self.timed[name] % len(samples)]
        self.timed[name] += 1
        others_sec = self.others_sec if self.timed[name] <= self.disturbed else 0.0
        watched = Watched(
            wall_sec=0.05, cores=2, others_sec=others_sec, steal_sec=0.0, switches=0, stalled_sec=None
        )
        return {"samples_sec": [sec], "watched": watched.to_json() if self.others_sec else None}


def side_by_side(networks: Networks, libraries: Mapping[str, Path] = LIBRARIES) -> SideBySide:
    return SideBySide(
        device=cast("DeviceRun", networks), libraries=libraries, inputs=Path("inputs.npz"), threads=2
    )


@pytest.mark.parametrize(
    ("without", "blocks"),
    [
        ([0.0120, 0.0121], 5),  # clearly slower without it
        ([0.0080, 0.0081], 5),  # clearly faster
        ([0.0090, 0.0092, 0.0089, 0.0108, 0.0107, 0.0110], 15),  # on both sides of the ratio that decides
    ],
)
def test_few_blocks_decide_a_clear_difference(without: list[float], blocks: int) -> None:
    networks = Networks(best=[0.0100, 0.0101], without=without)
    time_models(
        side_by_side(networks, {"with": Path("best.so"), "without": Path("without.so")}),
        limits=CompileLimits(),
        on_round=lambda _: None,
        decide=0.99,
    )
    assert networks.timed == {"best": blocks + 1, "without": blocks + 1}, "and a first inference"


def compared(networks: Networks, *, timing_sec: float) -> bool | None:
    return compare(networks, timing_sec=timing_sec)[1]


def compare(networks: Networks, *, timing_sec: float) -> tuple[dict[str, Latency], bool | None]:
    return compare_latency(
        side_by_side(networks),
        limits=CompileLimits(timing_sec=timing_sec),
        on_round=lambda _: None,
    )


# Medians of 51.9 and 44.0 ms; in three blocks of five the tuned network takes no longer.
LEFT_OPEN = {"tuned": [0.042, 0.043, 0.0519, 0.060, 0.070], "untuned": [0.0435, 0.044, 0.060, 0.044, 0.043]}


def test_a_disturbed_device_is_timed_until_the_time_is_up() -> None:
    networks = Networks(others_sec=0.06, **LEFT_OPEN)
    assert compared(networks, timing_sec=0.0) is None
    assert networks.timed["tuned"] == 16, "no further blocks that would be disturbed as well"
    networks = Networks(others_sec=0.06, **LEFT_OPEN)
    assert compared(networks, timing_sec=0.3) is None
    assert networks.timed["tuned"] > 16


@pytest.mark.parametrize("factor", [1.2, 1.5, 1.95])
def test_what_is_slower_within_the_blocks_is_slower_whatever_other_work_there_is(factor: float) -> None:
    untuned = [0.0440, 0.0600, 0.0441, 0.0500, 0.0800]
    networks = Networks(others_sec=0.05, tuned=[factor * sec for sec in untuned], untuned=untuned)
    assert compared(networks, timing_sec=0.0) is True


def test_timings_of_which_most_do_not_count_leave_it_to_the_kernels_where_the_blocks_do() -> None:
    """Of a job on a busy machine: 51.9 ms tuned, 44.0 untuned, by five blocks of fifteen; its kernels were far faster."""
    networks = Networks(others_sec=0.06, **LEFT_OPEN)
    latency, slower = compare(networks, timing_sec=0.0)
    assert [latency[name].median_sec for name in ("tuned", "untuned")] == [0.0519, 0.0440]
    assert slower is None


@pytest.mark.parametrize("others_sec", [0.0, 0.001])
def test_the_medians_decide_on_a_quiet_device_whose_samples_vary(others_sec: float) -> None:
    networks = Networks(others_sec=others_sec, tuned=[0.044, 0.044, 0.060, 0.061, 0.062], untuned=[0.0440])
    assert compared(networks, timing_sec=0.0) is True


@pytest.mark.parametrize(("tuned_sec", "slower"), [(0.0519, True), (0.0300, False)])
def test_what_a_device_says_once_it_is_quiet_decides(tuned_sec: float, slower: bool) -> None:
    networks = Networks(others_sec=0.06, disturbed=12, tuned=[tuned_sec], untuned=[0.0440])
    assert compared(networks, timing_sec=60.0) is slower
    assert networks.timed["tuned"] < 30


class FailingChild:
    """Stands in for a baseline's child process: it opens, answers some samples, and then is gone."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    def call(self, method: str, params: Any, timeout_sec: float) -> dict[str, Any]:
        if method == "open":
            return {"missing": "", "first_sec": 0.01, "version": "1", "computes": "float32", "checks": {}}
        if not self.answers:
            raise BaselineFailed("it failed: killed")
        self.answers -= 1
        return {"sample_sec": 0.02, "watched": None}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("answers", "timed"), [(0, False), (3, False), (1000, True)])
def test_a_runtime_that_fails_while_it_is_timed_is_left_out(
    answers: int, timed: bool, tmp_path: Path
) -> None:
    inputs = InputSet(inputs=tmp_path / "in.npz", expected=tmp_path / "out.npz")
    network = BaselineNetwork(path=tmp_path / "net", names=(), outputs=(), input_set=inputs, threads=1)
    baseline = Baseline(KINDS["openvino"], network, FailingChild(answers), timeout_sec=1.0)
    networks = Networks(tuned=[0.0100, 0.0101], untuned=[0.0120, 0.0121])
    latency, slower = compare_latency(
        replace(side_by_side(networks), others={"openvino": baseline}),
        limits=CompileLimits(timing_sec=0.0),
        on_round=lambda _: None,
    )
    assert slower is False
    assert len(latency["tuned"].samples_sec) >= 5
    assert ("openvino" in latency) is timed
    assert baseline.facts.missing == ("" if timed else "it failed: killed")
