from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefarm_api.paths import is_local, is_page, is_public
from tunefarm_api.web.charts.curve import MOST_POINTS, Curve, Point, baselines, chart, thinned
from tunefarm_api.web.charts.scatter import MOST_POINTS as MOST_TRIALS
from tunefarm_api.web.charts.scatter import histogram, scatter
from tunefarm_api.web.charts.sparkline import FALL_HEIGHT, FALL_WIDTH, HEIGHT, WIDTH, fall, staircase
from tunefarm_api.web.jobs.job_view import (
    Speedup,
    latency_of,
    progress_words,
    speedup_so_far,
)
from tunefarm_api.web.jobs.log_lines import log_line
from tunefarm_api.web.jobs.phases import phases_of
from tunefarm_api.web.jobs.schedule import KnobLine, schedule_lines
from tunefarm_api.web.jobs.task_view import task_lines
from tunefarm_api.web.live import changes
from tunefarm_db.repositories.farm.overview import JobHead
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Event, Job, JobTask, Space

JOB = Job(
    **dict.fromkeys(Job.__dataclass_fields__),  # type: ignore[arg-type]
)


def job(**changed: Any) -> Job:
    plain: dict[str, Any] = {
        "id": "job_1",
        "state": JobState.TUNING,
        "budget": {},
        "progress": {},
        "trials": 0,
        "tuned_sec": 0.0,
    }
    return replace(JOB, **{**plain, **changed})


def task(**changed: Any) -> JobTask:
    plain: dict[str, Any] = dict.fromkeys(JobTask.__dataclass_fields__)
    return JobTask(**{**plain, "weight": 1, "history": [], "position": 0, **changed})


def event(seq: int, at: float, kind: str, **data: Any) -> Event:
    return Event(job_id="job_1", seq=seq, kind=kind, data=data, created_at=at)


def test_which_paths_are_pages() -> None:
    assert all(map(is_page, ["/", "/jobs", "/jobs/x/y", "/static/app.js", "/sign-in", "/live"]))
    assert not any(
        map(
            is_page, ["/v1/jobs", "/healthz", "/readyz", "/metrics", "/jobsx", "/docs", "", "jobs", "//jobs/"]
        )
    )
    assert is_public("/static/x")
    assert not is_public("/jobs")
    assert is_local("/jobs?x=1#y")
    assert not any(map(is_local, ["//x", "x", "https://x", "/\\x", "/\nx", ""]))


def test_progress_is_held_against_the_limits_that_there_are() -> None:
    at = {"trials": 1200, "tuned_sec": 28.0}
    assert progress_words(job(budget={"trials": 5000}, **at)) == "1,200 of 5,000 trials, 28 s"
    assert progress_words(job(budget={"wall_sec": 30.0}, **at)) == "28 s of 30 s, 1,200 trials"
    both = progress_words(job(budget={"wall_sec": 30.0, "trials": 5000}, **at))
    assert both == "1,200 of 5,000 trials, 28 s of 30 s"
    assert progress_words(job(budget={"patience_trials": 8}, **at)) == "1,200 trials, 28 s"


def test_the_latency_is_measured_where_it_can_be() -> None:
    latency = latency_of(job(best_latency_sec=0.5), None)
    assert (latency.sec, latency.is_measured) == (0.5, False)
    latency = latency_of(job(best_latency_sec=0.5), {"latency": {"tuned": {"median_sec": 0.6}}})
    assert (latency.sec, latency.is_measured) == (0.6, True)
    assert latency_of(job(best_latency_sec=0.5), {"latency": {"tuned": None}}).sec == 0.5


def test_the_speed_up_so_far_weighs_the_kernels() -> None:
    tasks = [
        task(weight=2, best_cost_sec=1.0, history=[[8, None], [8, 2.0], [8, 1.0]]),
        task(weight=1, best_cost_sec=2.0, history=[[8, 2.0]]),
    ]
    assert speedup_so_far(tasks).ratio == pytest.approx(6 / 4)
    assert speedup_so_far([*tasks, task()]) is None
    assert speedup_so_far([]) is None


def test_a_curve_keeps_what_changes() -> None:
    curve = Curve()
    for number, best in enumerate([None, None, None, 4.0, 4.0, 4.0, 4.0, 3.0]):
        curve.add(number + 1, {"tuned_sec": number, "trials": 8 * number, "best_latency_sec": best})
    assert [point.latency_sec for point in curve.points] == [None, None, 4.0, 4.0, 3.0]
    assert curve.points[-1] == Point(7.0, 56, 3.0)
    assert curve.rates() == pytest.approx([8.0] * len(curve.rates()))
    drawn = chart(curve, None)
    assert (drawn["ms"], drawn["trials"], drawn["seq"]) == ([4000.0, 4000.0, 3000.0], [24, 48, 56], 8)


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


def test_a_sparkline_falls_within_its_box() -> None:
    points = [
        tuple(map(float, pair.split(",")))
        for pair in staircase([[8, None], [8, 4.0], [8, 2.0], [8, 2.0]]).split()
    ]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert points[0][1] < points[-1][1]
    assert staircase([]) == staircase([[8, None]]) == ""
    assert points[0][0] < 3  # it begins at the left edge, with the first that works
    (only, same) = staircase([[8, 1.0]]).split()
    assert only == same
    assert len(staircase([[1, 1.0 / n] for n in range(1, 5000)]).split()) < 200


def names_of(phases: list[Any]) -> dict[str, tuple[str, float | None]]:
    return {phase.name: (phase.status, phase.sec) for phase in phases}


STORY = [
    event(1, 10.0, "queued"),
    event(2, 12.0, "phase", phase="extracting"),
    event(3, 15.0, "phase", phase="tuning"),
]


def test_phases_of_a_job_that_runs() -> None:
    shown = names_of(phases_of(job(), STORY, now=25.0, imported=(1.0, 4.0), report=None))
    assert shown["import"] == ("done", 3.0)
    assert shown["queue"] == ("done", 2.0)
    assert shown["extract"] == ("done", 3.0)
    assert shown["tune"] == ("running", 10.0)
    assert shown["compile"] == ("waiting", None)


def test_a_pause_counts_for_no_phase() -> None:
    paused = [*STORY, event(4, 20.0, "paused", state="tuning")]
    shown = names_of(phases_of(job(state=JobState.PAUSED), paused, now=90.0, imported=None, report=None))
    assert shown["tune"] == ("paused", 5.0)
    resumed = [*paused, event(5, 100.0, "resumed", state="tuning")]
    assert names_of(phases_of(job(), resumed, now=110.0, imported=None, report=None))["tune"] == (
        "running",
        15.0,
    )


def test_phases_of_a_job_that_ended() -> None:
    ended = [
        *STORY,
        event(4, 20.0, "phase", phase="compiling"),
        event(5, 30.0, "finished", state="succeeded"),
    ]
    report = {"phases_sec": {"build-model": 6.0, "measure": 3.0, "pack": 1.0}}
    done = phases_of(job(state=JobState.SUCCEEDED), ended, now=99.0, imported=None, report=report)
    assert names_of(done)["compile"] == ("done", 6.0)
    assert names_of(done)["verify"] == ("done", 4.0)
    assert "confirm" not in names_of(done)
    cancelled = [*STORY, event(4, 20.0, "finished", state="cancelled")]
    shown = names_of(
        phases_of(job(state=JobState.CANCELLED), cancelled, now=99.0, imported=None, report=None)
    )
    assert shown["tune"] == ("stopped", 5.0)
    assert shown["verify"] == ("waiting", None)


def test_phases_of_a_job_of_which_nothing_is_known() -> None:
    shown = phases_of(job(state=JobState.QUEUED), [], now=1.0, imported=None, report=None)
    assert {phase.status for phase in shown} <= {"waiting", "running"}


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("round", {"task": "conv", "outcomes": {"ok": 7, "build-error": 1}, "best_cost_sec": 1e-3}, "conv: 7 ok, 1 build-error; best 1 ms"),
        ("round", {"task": "conv", "outcomes": {}}, "conv: search space exhausted"),
        ("phase", {"phase": "compiling", "stop_reason": "trials"}, "compiling begins: its limit of trials is reached"),
        ("retry", {"step": "tune", "attempt": 2, "error": None}, "the tune step is repeated (attempt 2): its worker was lost"),
        ("finished", {"state": "failed", "error": {"message": "no"}}, "failed: no"),
        ("budget", {"before": {"trials": 5}, "budget": {"trials": 9}}, "budget 5 trials → 9 trials"),
        ("of a newer release", {"x": 1, "y": [2]}, "x 1"),
        ("of a newer release", {}, "of a newer release"),
    ],
)  # fmt: skip
def test_events_in_words(kind: str, data: dict[str, Any], text: str) -> None:
    assert log_line(event(1, 0.0, kind, **data)).text == text


def test_what_changed_between_two_looks() -> None:
    def head(seq: int) -> JobHead:
        return JobHead(id="job_1", state=JobState.TUNING, event_seq=seq, updated_at=float(seq))

    assert changes({"job:1": head(1)}, {"job:1": head(1)}) == {}
    assert changes({"job:1": head(1)}, {"job:1": head(3), "job:2": head(1)}) == {"job:1": 3, "job:2": 1}
    assert changes({"job:1": head(1), "device:1": "x"}, {}) == {"device:1": 0}


def test_a_hundred_thousand_trials_are_cut_down_without_losing_the_best() -> None:
    ends = [
        ("build-error", None) if number % 3 == 0 else ("ok", 1.0 / (number + 1)) for number in range(100_000)
    ]
    few = [("ok", 1.0)] * 50_000 + [("ok", 0.5), ("run-error", None)] + [("ok", 1.0)] * 50_000
    drawn = scatter(few)
    assert len(drawn["ms"]) <= MOST_TRIALS + 2
    assert 500.0 in drawn["ms"]
    assert drawn["best"][-1] == 500.0
    assert drawn["trials"] == len(few)
    assert histogram(ends)[0][0] == "ok"
    assert sum(count for _, count, _ in histogram(ends)) == len(ends)
    assert histogram([]) == []
    assert scatter([])["trial"] == []


def test_a_schedule_in_words() -> None:
    space = Space(
        workload_key="w",
        target_key="t",
        toolchain="c",
        space_key="k",
        family=None,
        extents=[],
        space={"sketches": [[["tile", "i", 64, 3, 64], ["categorical", "unroll", [0, 16], []], ["location", "fuse", [-1, 2]]]]},
    )  # fmt: skip
    config = [0, [[4, 2, 8], 1, -1]]
    assert schedule_lines(config, space, "k") == [
        KnobLine(knob="i: split 64 into", decision="4 × 2 × 8"),
        KnobLine(knob="unroll", decision="16"),
        KnobLine(knob="fuse: computed", decision="at the root"),
    ]
    assert [line.knob for line in schedule_lines(config, space, "another")] == ["knob 1", "knob 2", "knob 3"]
    assert [line.decision for line in schedule_lines([5, [[2, 1]]], space, "k")] == ["2 × 1"]
    assert schedule_lines([0, []], None, "k") == []


def test_the_fall_of_the_best_stays_within_its_box() -> None:
    points = [
        tuple(map(float, pair.split(","))) for pair in fall([(0.0, 4.0), (5.0, 2.0), (9.0, 1.0)]).split()
    ]
    assert all(0 <= x <= FALL_WIDTH and 0 <= y <= FALL_HEIGHT for x, y in points)
    assert fall([]) == fall([(0.0, 1.0)]) == ""


def test_a_finished_jobs_kernels_are_told_as_they_were_timed_side_by_side() -> None:
    tasks = [
        # The search saw each of them at its luckiest; what the compiler timed was another moment.
        task(position=0, workload_key="a", best_cost_sec=1e-6, untuned_cost_sec=600e-6, history=[[8, 2e-6]]),
        task(position=1, workload_key="b", best_cost_sec=9e-6, history=[[8, 18e-6]]),
        task(position=2, workload_key="c", best_cost_sec=3e-6, history=[[8, 6e-6]]),
    ]
    misses = [{"workload_key": "b", "reason": "slower-than-untuned", "message": ""}]
    report = {
        "coverage": {"hits": [{"workload_key": "a"}, {"workload_key": "c"}], "misses": misses},
        "kernels": [
            {"workload_key": "a", "untuned_sec": [600e-6], "tuned_sec": [6e-6, 5e-6, 7e-6]},
            {"workload_key": "b", "untuned_sec": [1e-6], "tuned_sec": [9e-6]},
        ],
    }
    lines = {line.task.workload_key: line for line in task_lines(tasks, [], report)}
    assert lines["a"].speedup == Speedup(ratio=pytest.approx(100.0), than="untuned")
    assert lines["b"].speedup is None, "the artifact runs it untuned"
    assert lines["c"].speedup == Speedup(ratio=2.0, than="first round"), "nobody timed it"
    assert [lines[key].share for key in "abc"] == [pytest.approx(share) for share in (0.6, 0.1, 0.3)]
    before = {line.task.workload_key: line for line in task_lines(tasks, [])}
    assert before["a"].speedup == Speedup(ratio=2.0, than="first round")
    assert before["b"].share == pytest.approx(9 / 13)
