"""All trials of a kernel in one chart."""

from __future__ import annotations

from tunefarm_api.web.charts.scatter import MOST_POINTS, histogram, scatter


def test_a_hundred_thousand_trials_are_cut_down_without_losing_the_best() -> None:
    ends = [
        ("build-error", None) if number % 3 == 0 else ("ok", 1.0 / (number + 1)) for number in range(100_000)
    ]
    few = [("ok", 1.0)] * 50_000 + [("ok", 0.5), ("run-error", None)] + [("ok", 1.0)] * 50_000
    drawn = scatter(few)
    assert len(drawn["ms"]) <= MOST_POINTS + 2
    assert 500.0 in drawn["ms"]
    assert drawn["best"][-1] == 500.0
    assert drawn["trials"] == len(few)
    assert histogram(ends)[0][0] == "ok"
    assert sum(count for _, count, _ in histogram(ends)) == len(ends)
    assert histogram([]) == []
    assert scatter([])["trial"] == []
