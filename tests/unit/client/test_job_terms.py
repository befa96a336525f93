"""The terms of a job, as the client sends them: limits by their own names, and a text instead of a list of texts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tunefarm.client import InvalidRequestError
from tunefarm.client.job_terms import JobLimits, change_json, job_json, texts


@pytest.mark.parametrize("name", JobLimits.__annotations__)
@pytest.mark.parametrize("limit", [0, -1.5, math.nan, math.inf, "10", True])
def test_a_wrong_limit_is_called_by_the_name_that_the_caller_gave(name: str, limit: Any) -> None:
    for read in (job_json, change_json):
        with pytest.raises(InvalidRequestError) as refused:
            read({name: limit})  # type: ignore[operator]
        assert refused.value.code == "invalid-budget"
        assert str(refused.value) == f"{name} must be a number above zero, not {limit!r}"


def test_minutes_and_seconds_of_the_same_become_one_limit() -> None:
    limits = {"minutes": 1, "job_seconds": 30, "search_minutes": 0.5, "trials": 8, "patience": None}
    assert job_json(limits) == {"budget": {"trials": 8, "wall_sec": 30.0, "job_sec": 90.0}}  # type: ignore[arg-type]


def test_a_search_needs_a_limit_and_the_error_names_all() -> None:
    with pytest.raises(InvalidRequestError, match="minutes, search_minutes, patience, min_gain") as refused:
        job_json({"tuner": "ga"})
    assert refused.value.code == "invalid-budget"
    assert job_json({"search": False}) == {"options": {"search": False}}


def test_a_text_is_one_tag_not_its_letters() -> None:
    assert texts("abc") == ["abc"]
    assert texts(("a", "b")) == ["a", "b"]
    assert change_json({"tags": "abc"}) == {"tags": ["abc"]}
