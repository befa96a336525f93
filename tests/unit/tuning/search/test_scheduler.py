"""The task scheduler: warm-up, gain per second, and tasks that are left out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.scheduler import RoundSummary, TaskScheduler, TaskState

SCHEDULER = TaskScheduler()


def state(
    *costs_sec: float | None, weight: int = 1, flops: float = 1e9, sec_per_round: float = 2.0
) -> TaskState:
    return TaskState(
        weight=weight,
        flops=flops,
        history=tuple(RoundSummary(trials=8, best_sec=c) for c in costs_sec),
        spent_sec=sec_per_round * len(costs_sec),
        best_sec=costs_sec[-1] if costs_sec else None,
    )


def run(states: list[TaskState], rounds: int) -> list[int]:
    """Let every round find nothing new."""
    picks = []
    for _ in range(rounds):
        pick = SCHEDULER.next(states)
        assert pick is not None
        picks.append(pick)
        state = states[pick]
        best = state.best_sec or 1e-3
        states[pick] = replace(
            state,
            history=(*state.history, RoundSummary(trials=8, best_sec=best)),
            spent_sec=state.spent_sec + 2.0,
            best_sec=best,
        )
    return picks


def test_every_task_is_warmed_up_in_order_of_its_expected_share() -> None:
    states = [state(flops=1e6), state(flops=1e9), state(flops=4e8, weight=3), state(flops=1e6)]
    assert run(states, 4) == [2, 1, 0, 3]


def test_a_task_known_from_before_waits_in_the_warm_up() -> None:
    states = [replace(state(flops=1e9), best_sec=1e-3), state(flops=1e6)]
    assert run(states, 2) == [1, 0]


def test_exhausted_tasks_are_left_out() -> None:
    alive, spent = state(1e-6), replace(state(1.0), exhausted=True)
    assert SCHEDULER.next([spent, alive]) == 1
    assert SCHEDULER.next([spent, replace(state(), exhausted=True)]) is None
    assert SCHEDULER.next([]) is None


def test_the_task_that_takes_most_of_the_models_time_comes_first() -> None:
    assert SCHEDULER.next([state(1e-3), state(1e-3, weight=5)]) == 1
    assert SCHEDULER.next([state(9e-3), state(1e-3, weight=5)]) == 0


def test_quick_rounds_win_over_slow_ones() -> None:
    assert SCHEDULER.next([state(1e-3, sec_per_round=9.0), state(1e-3, sec_per_round=2.0)]) == 1


def test_recent_progress_wins_over_none() -> None:
    assert SCHEDULER.next([state(1e-3, 1e-3, 1e-3), state(9e-3, 5e-3, 1e-3)]) == 1


def test_rounds_without_gain_make_room_for_others() -> None:
    picks = run([state(4e-3), state(1e-3)], 10)
    assert set(picks) == {0, 1}
    assert picks.count(0) > picks.count(1)


def test_a_task_that_never_works_gets_few_rounds() -> None:
    assert SCHEDULER.next([state(None, flops=2e9), state(1e-3, 1e-3)]) == 0
    assert SCHEDULER.next([state(None, None, None, flops=1e12), state(1e-9, 1e-9)]) == 1
    assert SCHEDULER.next([state(None, None, None)]) == 0


costs = st.lists(st.none() | st.floats(1e-9, 10.0), max_size=5)


@given(st.lists(st.tuples(costs, st.integers(1, 50), st.floats(0, 1e12)), max_size=6))
def test_any_states_have_a_pick_and_always_the_same(
    drawn: list[tuple[list[float | None], int, float]],
) -> None:
    states = [state(*c, weight=w, flops=f) for c, w, f in drawn]
    pick = SCHEDULER.next(states)
    assert (pick is None) == (not states)
    assert pick == SCHEDULER.next(list(states))


def test_first_rounds_are_cut_short_so_that_every_task_gets_one() -> None:
    states = [state() for _ in range(6)]
    spent = 0
    for _ in range(6):
        pick = SCHEDULER.next(states)
        assert pick is not None
        size = SCHEDULER.round_size(states, pick, 8, Budget(trials=32), trials=spent, wall_sec=0.0)
        spent += size
        states[pick] = replace(
            states[pick], history=(RoundSummary(trials=size, best_sec=1e-3),), spent_sec=1.0, best_sec=1e-3
        )
    assert all(state.history for state in states)
    assert spent == 32


def test_a_short_time_is_shared_by_the_speed_seen_so_far() -> None:
    states = [state(1e-3, sec_per_round=8.0), *(state() for _ in range(10))]  # a second per trial

    def size(wall_sec: float) -> int:
        return SCHEDULER.round_size(states, 1, 8, Budget(wall_sec=wall_sec), trials=8, wall_sec=8.0)

    assert size(38.0) == 3
    assert size(9.0) == 1
    assert size(1000.0) == 8


def test_later_rounds_and_tasks_known_from_elsewhere_have_the_usual_size() -> None:
    known = TaskState(weight=1, flops=1e9, best_sec=1e-3)
    states = [state(1e-3), known, state()]
    budget = Budget(trials=10)
    assert SCHEDULER.round_size(states, 0, 8, budget, trials=0, wall_sec=0.0) == 8
    assert SCHEDULER.round_size(states, 1, 8, budget, trials=0, wall_sec=0.0) == 8
    assert SCHEDULER.round_size(states, 1, 8, budget, trials=7, wall_sec=0.0) == 3


def test_a_minor_task_begins_with_a_third() -> None:
    states = [state(), state(flops=1e5)]
    budget = Budget(trials=1000)
    assert SCHEDULER.round_size(states, 0, 9, budget, trials=0, wall_sec=0.0) == 9
    assert SCHEDULER.round_size(states, 1, 9, budget, trials=0, wall_sec=0.0) == 3


def gain(*states: TaskState) -> float:
    expected = SCHEDULER.gain_per_min(list(states))
    assert expected is not None
    return expected


def test_nothing_is_said_of_the_gain_before_every_task_had_its_rounds() -> None:
    assert SCHEDULER.gain_per_min([state(1e-3), state()]) is None
    assert SCHEDULER.gain_per_min([state(1e-3), state(None)]) is None
    assert SCHEDULER.gain_per_min([state(1e-3), state(None, None, None)]) is not None  # it is not waited for
    assert gain(replace(state(1e-3), exhausted=True)) == 0.0
    assert SCHEDULER.gain_per_min([]) is None


def test_the_expected_gain_goes_by_what_the_run_has_shown() -> None:
    fast, slow = state(4e-3, 2e-3, 1.4e-3, 1.2e-3), state(1.22e-3, 1.2e-3, 1.2e-3, 1.2e-3)
    assert 0.0 < gain(slow) < gain(fast) < 1.0
    still = [state(*[1e-3] * rounds) for rounds in (1, 5, 20, 80)]
    gains = [gain(state) for state in still]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 0.01


def test_the_expected_gain_is_of_one_minute_over_all_tasks() -> None:
    """Costs fall as rounds ** -0.2, as the forecast assumes: the forecast comes true."""
    costs = [1e-3 * rounds**-0.2 for rounds in range(1, 100)]
    now, later = state(*costs[:20]), state(*costs[:50])  # rounds take two seconds: thirty of them a minute
    true = 1 - costs[49] / costs[19]
    assert abs(gain(now) - true) < 0.1 * true
    assert gain(later) < gain(now)
    # Two such tasks share the minute, and one that is slow to tune gets less of it.
    assert true / 2 < gain(now, now) < true
    assert gain(now, replace(now, weight=1, spent_sec=400.0)) < gain(now, now)


@given(st.lists(st.tuples(costs, st.integers(1, 50), st.floats(0, 1e12)), max_size=6))
def test_an_expected_gain_is_a_share(drawn: list[tuple[list[float | None], int, float]]) -> None:
    expected = SCHEDULER.gain_per_min([state(*c, weight=w, flops=f) for c, w, f in drawn])
    assert expected is None or 0.0 <= expected <= 1.0
