"""The figures at the top of a job's page."""

from __future__ import annotations

import pytest
from job_values import job, task

from tunefarm_api.web.jobs.job_view import device_of, progress_words, speedup_so_far
from tunefarm_db.states.job import JobState


def test_progress_is_held_against_the_limits_that_there_are() -> None:
    at = {"trials": 1200, "tuned_sec": 28.0}
    assert progress_words(job(budget={"trials": 5000}, **at)) == "1,200 of 5,000 trials, 28 s"
    assert progress_words(job(budget={"wall_sec": 30.0}, **at)) == "28 s of 30 s, 1,200 trials"
    assert (
        progress_words(job(budget={"wall_sec": 2.7}, trials=1, tuned_sec=8.2))
        == "8.2 s, limit 2.7 s, 1 trial"
    )
    assert progress_words(job(budget={"wall_sec": 30.0}, trials=1, tuned_sec=30.2)) == "30 s of 30 s, 1 trial"
    both = progress_words(job(budget={"wall_sec": 30.0, "trials": 5000}, **at))
    assert both == "1,200 of 5,000 trials, 28 s of 30 s"
    assert progress_words(job(budget={"patience_trials": 8}, **at)) == "1,200 trials, 28 s"


def test_the_speed_up_so_far_weighs_the_kernels() -> None:
    tasks = [
        task(weight=2, best_cost_sec=1.0, history=[[8, None], [8, 2.0], [8, 1.0]]),
        task(weight=1, best_cost_sec=2.0, history=[[8, 2.0]]),
    ]
    assert speedup_so_far(tasks).ratio == pytest.approx(6 / 4)
    assert speedup_so_far([*tasks, task()]) is None
    assert speedup_so_far([]) is None


@pytest.mark.parametrize(
    ("state", "progress", "device"),
    [
        (JobState.TUNING, {"device": "dev-1"}, "dev-1"),
        (JobState.TUNING, {}, None),
        (JobState.PAUSED, {"device": "dev-1"}, None),
        (JobState.SUCCEEDED, {"device": "dev-1"}, None),
    ],
)
def test_a_job_at_work_names_its_device(
    state: JobState, progress: dict[str, str], device: str | None
) -> None:
    assert device_of(job(state=state, progress=progress)) == device
