"""The terms of a job in words."""

from __future__ import annotations

import pytest

from tunefarm_text.job_terms import SWEEP_RULE, sweep_rule

TIME = {"job_sec": 60.0}


@pytest.mark.parametrize(
    ("budget", "pools", "rule"),
    [
        ({}, 1, ""),
        (TIME, 1, "The jobs share the time equally. Other jobs do not get what a job leaves unused."),
        (
            {"trials": 8},
            2,
            "All jobs share the trials equally. Other jobs do not get what a job leaves unused.",
        ),
        ({"patience_trials": 8}, 1, "Patience applies to each job by itself."),
        ({"trials": None, "min_gain_per_min": 0.01}, 1, "Minimum gain applies to each job by itself."),
    ],
)
def test_of_a_sweeps_rule_what_applies_is_said(budget: dict[str, float], pools: int, rule: str) -> None:
    assert sweep_rule(budget, pools=pools) == rule


def test_all_of_the_rule() -> None:
    whole = {"job_sec": None, "wall_sec": 60.0, "trials": 8, "patience_trials": 8, "min_gain_per_min": 0.01}
    assert sweep_rule(whole, pools=2) == SWEEP_RULE
