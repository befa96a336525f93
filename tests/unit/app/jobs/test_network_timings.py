"""When a search compiles its network again, and when it may time it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from app_farm import farm_settings
from job_values import job, network_timing

from tunefarm_app.jobs.network_timings import (
    MOST_TRIES,
    costs_now,
    costs_then,
    expected_sec,
    fastest_of,
    may_compile_again,
    promised_gain,
    promises_enough,
    to_time,
    why_never,
)


@pytest.fixture
def settings(tmp_path: Any) -> Any:
    return farm_settings(tmp_path)


@dataclass(frozen=True)
class Task:
    workload_key: str
    best_cost_sec: float | None
    weight: int = 1
    alternative: Any = None


def test_nothing_is_timed_in_the_first_minute(settings: Any) -> None:
    network = network_timing(expected_sec=1.0)
    assert to_time(job(tuned_sec=59.0), [network], settings) is None
    assert to_time(job(tuned_sec=60.0), [network], settings) == network
    assert to_time(job(tuned_sec=60.0), [], settings) is None


def test_all_timings_take_three_percent_of_the_search(settings: Any) -> None:
    slow = network_timing(expected_sec=6.0)
    assert to_time(job(tuned_sec=199.0), [slow], settings) is None
    assert to_time(job(tuned_sec=200.0), [slow], settings) == slow
    timed = network_timing(latency_sec=0.01, spent_sec=4.0, tuned_sec=200.0)
    newest = network_timing(number=1, expected_sec=100.0)  # what the last one took tells more
    assert to_time(job(tuned_sec=266.0), [timed, newest], settings) is None
    assert to_time(job(tuned_sec=267.0), [timed, newest], settings) == newest
    failed = network_timing(error={"code": "run-failed"}, spent_sec=30.0)
    assert (
        to_time(job(tuned_sec=1000.0), [failed, network_timing(number=1, expected_sec=1.0)], settings) is None
    )


def test_only_the_newest_is_timed_once_and_tried_twice(settings: Any) -> None:
    searching = job(tuned_sec=1000.0)
    assert to_time(searching, [network_timing(latency_sec=0.01)], settings) is None
    assert to_time(searching, [network_timing(error={"code": "run-failed"})], settings) is None
    assert to_time(searching, [network_timing(tries=MOST_TRIES - 1)], settings) is not None
    assert to_time(searching, [network_timing(tries=MOST_TRIES)], settings) is None


def test_a_short_search_says_why_it_times_nothing(settings: Any) -> None:
    def code(expected: float, last: Any = None, **budget: float) -> str | None:
        error = why_never(job(budget=budget), last, expected, settings)
        return None if error is None else error["code"]

    assert code(1.5, wall_sec=45.0) == "network-timing-too-long"
    assert code(2.5, wall_sec=60.0) == "network-timing-too-long"
    assert code(1.7, wall_sec=60.0) is None
    assert code(100.0, trials=64) is None, "nobody knows how long that takes"
    assert code(100.0, network_timing(latency_sec=0.1, spent_sec=1.5), wall_sec=300.0) is None
    error = why_never(job(budget={"wall_sec": 300.0}), None, 12.0, settings)
    assert error is not None
    assert error["message"] == "timing the network should take 12.0 s, more than 3% of a search of 300 s"
    off = settings.model_copy(update={"network_timing_share": 0.0})
    assert (why_never(job(budget={}), None, 0.1, off) or {})["code"] == "network-timing-off"


def test_a_slow_network_takes_as_long_as_its_inferences() -> None:
    assert expected_sec(size_bytes=0, latency_here_sec=0.01) == pytest.approx(1.1)
    assert expected_sec(size_bytes=0, latency_here_sec=2.0) == pytest.approx(16.5)
    assert expected_sec(size_bytes=100_000_000, latency_here_sec=None) == pytest.approx(3.1)


def test_networks_are_compiled_at_growing_intervals(settings: Any) -> None:
    def due(tuned_sec: float, began_sec: float, **budget: float) -> bool:
        return may_compile_again(
            job(tuned_sec=tuned_sec, budget=budget), network_timing(began_sec=began_sec), settings
        )

    assert [due(sec, 0.0) for sec in (29.0, 30.0)] == [False, True]
    assert [due(sec, 30.0) for sec in (59.0, 60.0)] == [False, True]
    assert [due(sec, 70.0) for sec in (139.0, 140.0)] == [False, True]
    assert [due(sec, 70.0, wall_sec=180.0) for sec in (150.0, 170.0)] == [True, False]


def test_the_gain_is_that_of_the_network() -> None:
    flops = {"a": 8e6, "b": 2e6}
    both = [Task("a", 0.004), Task("b", 0.001)]
    # Untuned, the network takes 20 ms, 16 of which are a's share.
    assert promised_gain(both, flops, [None, None], 0.020) == pytest.approx(0.75)
    assert promised_gain([Task("a", None), Task("b", 0.001)], flops, [None, None], 0.020) == pytest.approx(
        0.15
    )
    # b is tuned in it: what a could save is all of the rest.
    assert promised_gain(both, flops, [None, 0.001], 0.011) == pytest.approx(6 / 11)
    assert promised_gain(both, flops, [0.0041, 0.001], 0.0055) == pytest.approx(0.1 / 5.1)
    assert promised_gain(both, flops, [0.004, 0.001], None) == 0.0
    # Nobody has timed it yet.
    assert promised_gain(both, flops, [None, None], None) == pytest.approx(0.5)
    assert promised_gain([Task("a", None)], flops, [None], None) == 0.0
    assert promised_gain([Task("c", None), Task("a", 1.0)], {}, [None, None], None) == pytest.approx(0.5)
    assert promised_gain([], {}, [], None) == 0.0
    assert [promises_enough(gain) for gain in (0.049, 0.05)] == [False, True]


def test_calls_count_and_alternatives_replace() -> None:
    flops = {"a": 1e6, "b": 1e6}
    often = [Task("a", 0.001, weight=9), Task("b", 0.001)]
    assert promised_gain(often, flops, [0.002, 0.001], 0.019) == pytest.approx(9 / 19)
    winograd = {"algorithm": "winograd-4", "instead_of": ["a"], "overhead": 0.0}
    replaced = [Task("a", 0.002), Task("w", 0.001, alternative=winograd)]
    assert promised_gain(replaced, flops, [0.002, None], 0.002) == pytest.approx(0.5)


def test_costs_are_kept_by_position() -> None:
    tasks = [Task("a", 0.002), Task("b", None), Task("c", 0.001)]
    assert costs_now(tasks) == {"0": 0.002, "2": 0.001}
    assert costs_then(network_timing(costs=costs_now(tasks)), 3) == [0.002, None, 0.001]


def test_the_fastest_counts() -> None:
    timed = [network_timing(number=n, latency_sec=sec) for n, sec in enumerate([0.3, None, 0.1, 0.2])]
    fastest = fastest_of(timed)
    assert fastest is not None
    assert fastest.number == 2
    assert fastest_of([network_timing()]) is None
