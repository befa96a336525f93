"""The progress of a job's search, and its remaining time."""

from __future__ import annotations

import pytest
from job_values import job

from tunefarm_app.jobs.progress import eta_sec, share_done, time_left
from tunefarm_db.states.job import JobState


def test_what_is_left_is_the_limit_that_comes_first() -> None:
    assert time_left(job(budget={"wall_sec": 100.0}, tuned_sec=40.0)).soonest_sec == 60
    both = time_left(job(budget={"wall_sec": 100.0, "trials": 50}, tuned_sec=40.0, trials=40))
    assert both.soonest_sec == pytest.approx(10)
    ranged = time_left(job(budget={"trials": 100}, tuned_sec=40.0, trials=40), rates=[0.5, 2.0])
    assert (ranged.soonest_sec, ranged.latest_sec) == (30, 120)
    assert ranged.is_range
    early = time_left(job(budget={"trials": 100}, tuned_sec=40.0, trials=40), rates=[])
    assert (early.soonest_sec, early.latest_sec) == pytest.approx((40, 60 / 0.7))
    assert not time_left(job(budget={"trials": 100}, tuned_sec=40.0, trials=40)).is_range
    assert time_left(job(budget={"patience_trials": 5}, tuned_sec=1.0, trials=4)) is None
    assert time_left(job(budget={"wall_sec": 1.0}, state=JobState.COMPILING)) is None
    assert time_left(job(budget={"trials": 9})) is None


def test_the_share_that_is_done() -> None:
    assert share_done(job(budget={"wall_sec": 100.0, "trials": 10}, tuned_sec=40.0, trials=9)) == 0.9
    assert share_done(job(budget={"trials": 10}, trials=12)) == 1.0
    assert share_done(job(budget={"patience_trials": 5})) is None
    assert share_done(job(budget={}, state=JobState.SUCCEEDED)) == 1.0


def test_the_expected_time_is_at_the_mean_pace_whatever_the_range() -> None:
    searching = job(budget={"trials": 100}, tuned_sec=40.0, trials=40)
    left = time_left(searching, rates=[0.5, 2.0])
    assert left is not None
    assert left.soonest_sec < left.expected_sec < left.latest_sec
    assert eta_sec(searching) == left.expected_sec == 60
    assert eta_sec(job(budget={"wall_sec": 100.0, "trials": 50}, tuned_sec=40.0, trials=40)) == pytest.approx(
        10
    )
    assert eta_sec(job(budget={"patience_trials": 5}, tuned_sec=1.0, trials=4)) is None
    assert eta_sec(job(budget={"wall_sec": 1.0}, state=JobState.PAUSED)) is None


def test_the_time_left_counts_the_compile() -> None:
    options = {"expected_compile_sec": 30.0}
    searching = job(budget={"wall_sec": 100.0}, tuned_sec=40.0, options=options)
    assert eta_sec(searching) == 90
    confirming = job(budget={"wall_sec": 100.0}, tuned_sec=99.0, options=options, stop_reason="wall_sec")
    assert eta_sec(confirming) == 30
    compiling = job(
        state=JobState.COMPILING, options=options, stop_reason="wall_sec", progress={"began_at": 1000.0}, updated_at=1012.0
    )  # fmt: skip
    assert eta_sec(compiling) == 18
    late = job(
        state=JobState.COMPILING, options=options, progress={"began_at": 1000.0}, updated_at=1099.0
    )  # fmt: skip
    assert eta_sec(late) is None, "it takes longer than was expected, and nobody knows how long"
    queued = job(state=JobState.QUEUED, budget={"job_sec": 60.0})
    assert eta_sec(queued) == 60
    done = job(state=JobState.SUCCEEDED, options=options, stop_reason="wall_sec")
    assert eta_sec(done) is None
    paused = job(state=JobState.PAUSED, options=options)
    assert eta_sec(paused) is None
