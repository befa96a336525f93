"""Untrusted text, made safe to print."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.core.untrusted_text import clean, clean_lines


@given(st.text(alphabet=st.characters()), st.integers(1, 200))
def test_any_text_becomes_one_short_printable_line(text: str, limit: int) -> None:
    safe = clean(text, limit)
    assert safe.isprintable()
    assert len(safe) <= limit + 40
    safe.encode("utf-8")


@given(st.text(alphabet=st.characters(categories=["L", "N"]), max_size=120))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_escapes_newlines_and_direction_overrides_are_shown() -> None:
    assert clean("a\x1b[31m\n\u202eb") == "a\\x1b[31m\\n\\u202eb"
    assert clean("\ud800") == "\\ud800"


def test_what_is_cut_is_counted() -> None:
    assert clean("x" * 1000, 10) == "xxxxxxxxxx… (990 more characters)"


@given(st.text(alphabet=st.characters()))
def test_lines_stay_lines(text: str) -> None:
    safe = clean_lines(text)
    assert all(c.isprintable() or c in "\n\t" for c in safe)
    assert safe.count("\n") == text.count("\n")
    safe.encode("utf-8")


def test_lines_of_code_stay_as_they_are() -> None:
    code = "for i in range(4):\n\tx[i] = 1  # é, 丈\n"
    assert clean_lines(code) == code
    assert clean_lines("a\x1b[31mb\r\n\u202ec") == "a\\x1b[31mb\\r\n\\u202ec"
