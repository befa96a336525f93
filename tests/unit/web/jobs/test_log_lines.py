"""A job's events in words."""

from __future__ import annotations

from typing import Any

import pytest
from job_values import event

from tunefarm_api.web.jobs import log_lines
from tunefarm_api.web.jobs.log_lines import log_line
from tunefarm_app.webhooks.register import KINDS
from tunefarm_db.states.job import JobState


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("round", {"task": "conv", "outcomes": {"ok": 7, "build-error": 1}, "best_cost_sec": 1e-3}, "conv: 7 ok, 1 build-error; best 1 ms"),
        ("round", {"task": "conv", "outcomes": {}}, "conv: search space exhausted"),
        ("phase", {"phase": "compiling", "stop_reason": "trials"}, "compiling begins: the limit of trials was reached"),
        ("retry", {"step": "tune", "attempt": 2, "error": None}, "the tune step is repeated (attempt 2): its worker was lost"),
        ("lane-lost", {"round": 3, "error": {"message": "no memory"}}, "round 3 failed; the job's other rounds continue: no memory"),
        ("finished", {"state": "failed", "error": {"message": "no"}}, "failed: no"),
        ("budget", {"before": {"trials": 5}, "budget": {"trials": 9}}, "budget 5 trials → 9 trials"),
        ("of a newer release", {"x": 1, "y": [2]}, "x 1"),
        ("of a newer release", {}, "of a newer release"),
    ],
)  # fmt: skip
def test_events_in_words(kind: str, data: dict[str, Any], text: str) -> None:
    assert log_line(event(1, 0.0, kind, **data)).text == text


@pytest.mark.parametrize(
    "kind", sorted(set(KINDS) - {state.value for state in JobState if state.is_finished})
)
def test_every_kind_of_event_has_a_sentence(kind: str) -> None:
    assert log_line(event(1, 0.0, kind, of_no_sentence=1)).text != "of_no_sentence 1"


def test_every_kind_that_the_log_tells_can_be_subscribed_to() -> None:
    assert set(log_lines._KINDS) - set(KINDS) == set()
    assert set(KINDS) - set(log_lines._KINDS) == {state.value for state in JobState if state.is_finished}
