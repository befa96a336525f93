"""Every stable name has a sentence for people."""

from __future__ import annotations

from tunefarm_app.report.words import OUTCOMES
from tunefarm_text.coverage_words import NOT_TRIED, REASONS
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.coverage import MissReason


def test_every_outcome_has_a_sentence() -> None:
    assert OUTCOMES.keys() == {outcome.value for outcome in Outcome}


def test_every_reason_of_a_miss_has_a_sentence() -> None:
    assert REASONS.keys() == {reason.value for reason in MissReason} | {NOT_TRIED}
