"""Budgets: at least one limit, all above zero, whichever is reached first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.search.budget import Budget


@given(
    st.none() | st.integers(1, 10**9),
    st.none() | st.floats(1e-3, 1e9),
    st.none() | st.integers(1, 10**9),
    st.none() | st.floats(1e-6, 1.0),
)
def test_a_budget_survives_json(
    trials: int | None, wall_sec: float | None, patience: int | None, min_gain: float | None
) -> None:
    limits = {
        "trials": trials,
        "wall_sec": wall_sec,
        "patience_trials": patience,
        "min_gain_per_min": min_gain,
    }
    if all(limit is None for limit in limits.values()):
        with pytest.raises(InvalidInputError, match="empty: set at least one of trials, wall_sec"):
            Budget(**limits)  # type: ignore[arg-type]
    else:
        budget = Budget(**limits)  # type: ignore[arg-type]
        assert budget.to_json() == limits
        assert Budget.from_json(budget.to_json()) == budget


@pytest.mark.parametrize("limit", ["trials", "wall_sec", "patience_trials", "min_gain_per_min"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_above_zero(limit: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=limit) as caught:
        Budget(**{limit: value})  # type: ignore[arg-type]
    assert caught.value.code == "invalid-budget"


def test_the_limit_that_is_reached_is_named() -> None:
    budget = Budget(trials=10, wall_sec=5.0, patience_trials=3)
    assert budget.exhausted_by(trials=9, wall_sec=4.9, trials_since_improvement=2) is None
    assert budget.exhausted_by(trials=10, wall_sec=0.0, trials_since_improvement=0) == "trials"
    assert budget.exhausted_by(trials=0, wall_sec=5.0, trials_since_improvement=0) == "wall_sec"
    assert budget.exhausted_by(trials=0, wall_sec=0.0, trials_since_improvement=3) == "patience_trials"


def test_limits_that_are_not_set_are_not_reached() -> None:
    assert Budget(trials=1).exhausted_by(trials=0, wall_sec=1e9, trials_since_improvement=10**9) is None


def test_what_a_minute_should_win_is_looked_at_once_it_is_known() -> None:
    budget = Budget(trials=10, min_gain_per_min=0.01)

    def by(gain_per_min: float | None, trials: int = 0) -> str | None:
        return budget.exhausted_by(
            trials=trials, wall_sec=0.0, trials_since_improvement=0, gain_per_min=gain_per_min
        )

    assert (by(None), by(0.02), by(0.01)) == (None, None, None)
    assert by(0.009) == "min_gain_per_min"
    assert by(0.009, trials=10) == "trials"


def test_a_budget_of_an_older_release_is_read() -> None:
    assert Budget.from_json({"trials": 3, "wall_sec": None, "patience_trials": None}) == Budget(trials=3)
