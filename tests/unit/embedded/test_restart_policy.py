"""How often a part is restarted."""

from __future__ import annotations

from tunefarm.embedded.restart_policy import MAX_DEATHS_BEFORE_UP, MAX_QUICK_DEATHS, RestartPolicy


def test_a_part_that_never_came_up_is_given_up_soon() -> None:
    policy = RestartPolicy()
    waits = [policy.died(1.0) for _ in range(MAX_DEATHS_BEFORE_UP)]
    assert waits[-1] is None
    assert None not in waits[:-1]


def test_a_part_that_was_up_gets_more_chances_ever_later() -> None:
    policy = RestartPolicy()
    policy.was_up()
    waits = [policy.died(1.0) for _ in range(MAX_QUICK_DEATHS)]
    assert waits[-1] is None
    assert waits[:-1] == sorted(wait for wait in waits if wait is not None)


def test_a_long_life_is_a_clean_slate() -> None:
    policy = RestartPolicy()
    policy.was_up()
    first = policy.died(1.0)
    for _ in range(100):
        policy.died(3600.0)
    assert policy.died(3600.0) == first


def test_a_slow_start_that_fails_is_no_long_life() -> None:
    policy = RestartPolicy()
    assert [policy.died(100.0) for _ in range(MAX_DEATHS_BEFORE_UP)][-1] is None


def test_a_part_that_says_it_was_told_wrong_is_given_up_at_once() -> None:
    assert RestartPolicy().died(1.0, code=2) is None
    policy = RestartPolicy()
    policy.was_up()
    assert policy.died(1.0, code=2) is not None
