"""A job's curve of latency over its search."""

from __future__ import annotations

import pytest

from tunefarm_api.web.charts.curve import MOST_POINTS, Curve, Point, baselines, chart, thinned


def test_a_curve_keeps_what_changes() -> None:
    curve = Curve()
    for number, best in enumerate([None, None, None, 4.0, 4.0, 4.0, 4.0, 3.0]):
        curve.add(number + 1, {"tuned_sec": number, "trials": 8 * number, "best_latency_sec": best})
    assert [point.latency_sec for point in curve.points] == [None, None, 4.0, 4.0, 3.0]
    assert curve.points[-1] == Point(7.0, 56, 3.0)
    assert curve.rates() == pytest.approx([8.0] * len(curve.rates()))
    drawn = chart(curve, None)
    assert (drawn["ms"], drawn["trials"], drawn["seq"]) == ([4000.0, 4000.0, 3000.0], [24, 48, 56], 8)


def test_the_network_is_a_curve_of_its_own() -> None:
    curve = Curve()
    curve.add(1, {"tuned_sec": 50.0, "trials": 8, "best_latency_sec": None})
    timed = {"latency_sec": 0.02, "low_sec": 0.019, "high_sec": None, "tasks": 3, "device": "dev-1"}
    curve.add(2, {**timed, "tuned_sec": 60.0, "trials": 16, "covered": 0})
    curve.add(3, {**timed, "tuned_sec": 90.0, "trials": 32, "covered": 2, "latency_sec": 0.01})
    drawn = chart(curve, None)
    assert (drawn["ms"], drawn["seq"]) == ([], 3)
    assert drawn["networks"] == [
        {"sec": 60.0, "trials": 16, "ms": 20.0, "low": 19.0, "high": None, "tuned": "untuned"},
        {"sec": 90.0, "trials": 32, "ms": 10.0, "low": 19.0, "high": None, "tuned": "2 of 3 kernels tuned"},
    ]
    assert curve.rounds == [(50.0, 8)], "what a round does to the pace, a timing does not"


def test_a_short_search_and_a_hybrid_have_the_points_of_their_compile() -> None:
    latency = {"untuned": {"median_sec": 0.03}, "tuned": {"median_sec": 0.01}, "onnxruntime": None}
    report = {"latency": latency, "coverage": {"tasks": 3, "covered": 2}}
    drawn = chart(Curve(), report, tuned_sec=12.0, trials=20)
    assert [(point["sec"], point["trials"], point["ms"], point["tuned"]) for point in drawn["networks"]] == [
        (0.0, 0, 30.0, "untuned"),
        (12.0, 20, 10.0, "2 of 3 kernels tuned"),
    ]


def test_a_curve_without_a_search_or_a_measurement_has_no_such_points() -> None:
    latency = {"untuned": {"median_sec": 0.03}, "tuned": {"median_sec": 0.01}}
    assert chart(Curve(), {"latency": latency})["networks"] == []
    untimed = {"latency": {**latency, "tuned": None}}
    assert chart(Curve(), untimed, tuned_sec=12.0, trials=20)["networks"] == []


def test_a_confirmation_moves_the_curve_too() -> None:
    curve = Curve()
    curve.add(1, {"tuned_sec": 1.0, "trials": 8, "best_latency_sec": 1.0})
    curve.add(2, {"tuned_sec": 2.0, "best_latency_sec": 1.5})
    assert curve.points[-1] == Point(2.0, 8, 1.5)


@pytest.mark.parametrize("count", [0, 1, 2, MOST_POINTS, MOST_POINTS + 1, 50_000])
def test_a_long_curve_is_thinned(count: int) -> None:
    points = [Point(float(n), n, 1.0 / (n + 1)) for n in range(count)]
    thin = thinned(points, MOST_POINTS)
    assert len(thin) == min(count, MOST_POINTS)
    assert thin == sorted(thin, key=lambda point: point.trials)
    if count:
        assert (thin[0], thin[-1]) == (points[0], points[-1])


def test_a_curve_of_a_million_rounds_stays_small() -> None:
    curve = Curve()
    for number in range(100_000):
        curve.add(number + 1, {"tuned_sec": number, "trials": number, "best_latency_sec": 1.0 / (number + 1)})
    assert len(curve.points) <= 40_000
    assert len(curve.rounds) <= 40_000
    assert curve.points[-1].trials == 99_999


def test_baselines_are_what_was_measured() -> None:
    assert baselines(None) == baselines({}) == baselines({"latency": {"tuned": None}}) == []
