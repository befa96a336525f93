"""The phases of a job, from its events."""

from __future__ import annotations

from typing import Any

from job_values import event, job

from tunefarm_api.web.jobs.phases import phases_of
from tunefarm_db.states.job import JobState


def names_of(phases: list[Any]) -> dict[str, tuple[str, float | None]]:
    return {phase.name: (phase.status, phase.sec) for phase in phases}


STORY = [
    event(1, 10.0, "queued"),
    event(2, 12.0, "phase", phase="extracting"),
    event(3, 15.0, "phase", phase="tuning"),
]


def test_phases_of_a_job_that_runs() -> None:
    shown = names_of(phases_of(job(created_at=4.5), STORY, now=25.0, imported=(1.0, 4.0), report=None))
    assert shown["import"] == ("done", 3.0)
    earlier = phases_of(job(created_at=4.5), STORY, now=25.0, imported=(1.0, 4.0), report=None)
    assert [phase.name for phase in earlier if phase.is_earlier] == ["import"]
    meanwhile = phases_of(job(created_at=3.5), STORY, now=25.0, imported=(1.0, 4.0), report=None)
    assert not any(phase.is_earlier for phase in meanwhile)
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
