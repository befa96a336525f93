"""The job's states."""

from __future__ import annotations

import pytest

from tunefarm_db.states.job import OPEN_STATES, TRANSITIONS, JobState, sources


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(JobState)
    reached = {JobState.QUEUED}
    for _ in JobState:
        reached |= {to for state in reached for to in TRANSITIONS[state]}
    assert reached == set(JobState)


def test_final_states() -> None:
    final = {state for state in JobState if state.is_finished}
    assert final == {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    assert set(JobState) - final == OPEN_STATES


@pytest.mark.parametrize(
    ("state", "clause"),
    [
        (JobState.SUCCEEDED, "has succeeded"),
        (JobState.FAILED, "has failed"),
        (JobState.CANCELLED, "was cancelled"),
        (JobState.PAUSED, "is paused"),
        (JobState.TUNING, "is tuning"),
    ],
)
def test_a_state_continues_a_sentence(state: JobState, clause: str) -> None:
    assert state.clause == clause


def test_every_open_job_can_fail_and_be_cancelled() -> None:
    assert sources(JobState.FAILED) == sources(JobState.CANCELLED) == OPEN_STATES
    assert sources(JobState.QUEUED) == {JobState.PAUSED, JobState.FAILED}


def test_only_a_failed_job_goes_on_after_its_end() -> None:
    assert {state for state in JobState if state.is_finished and TRANSITIONS[state]} == {JobState.FAILED}
    # Extracting begins again.
    assert TRANSITIONS[JobState.FAILED] == OPEN_STATES - {JobState.EXTRACTING, JobState.PAUSED}


def test_every_open_job_can_be_paused_and_goes_on_where_it_was() -> None:
    assert sources(JobState.PAUSED) == OPEN_STATES - {JobState.PAUSED}
    # Extracting begins again.
    assert OPEN_STATES - TRANSITIONS[JobState.PAUSED] == {JobState.EXTRACTING, JobState.PAUSED}
