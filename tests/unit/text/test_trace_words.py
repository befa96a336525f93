from __future__ import annotations

from tunefarm_text.trace_words import trace_words
from tunefarm_tuning.core.spans import WAITING, SpanKind


def test_every_kind_of_time_has_words() -> None:
    words = [trace_words(kind) for kind in (WAITING, *SpanKind)]
    assert len(set(words)) == len(words)
    assert trace_words("a kind of a later release") == "a kind of a later release"
