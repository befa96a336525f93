"""The cheapest of a kernel and its alternatives counts."""

from __future__ import annotations

from typing import Any

from tunefarm_tuning.search.scheduler import RoundSummary, TaskState
from tunefarm_tuning.search.task_groups import GroupedTask, counting, for_scheduler, latency_sec
from tunefarm_tuning.workload.task import Alternative


def task(key: str, best_sec: float | None, weight: int = 1, **alternative: Any) -> GroupedTask:
    return GroupedTask(
        workload_key=key,
        weight=weight,
        best_sec=best_sec,
        alternative=Alternative(algorithm="winograd-4", **alternative) if alternative else None,
    )


def state(best_sec: float | None, rounds: int = 1) -> TaskState:
    history = (RoundSummary(trials=8, best_sec=best_sec),) * rounds
    return TaskState(weight=1, flops=1e6, history=history, best_sec=best_sec)


def test_without_alternatives_it_is_the_sum() -> None:
    assert latency_sec([task("a", 2.0, 3), task("b", 1.0)]) == 7.0
    assert latency_sec([task("a", 2.0), task("b", None)]) is None
    assert latency_sec([]) is None


def test_the_cheapest_counts_with_all_kernels_of_its_algorithm() -> None:
    tasks = [
        task("a", 2.0, 3),
        task("b", 1.0, 2),
        task("w", 1.0, 5, instead_of=("a", "b"), overhead=0.5),
    ]
    assert latency_sec(tasks) == 3 * 1.5 + 2 * 1.0


def test_an_alternative_stands_for_a_kernel_that_has_no_cost_yet() -> None:
    assert latency_sec([task("a", None, 2), task("w", 1.0, 2, instead_of=("a",), overhead=0.0)]) == 2.0
    assert latency_sec([task("a", 1.0, 2), task("w", None, 2, instead_of=("a",), overhead=0.0)]) == 2.0


def test_what_counts() -> None:
    direct, other = task("a", 2.0), task("b", 1.0)
    assert counting([direct, other, task("w", 1.0, instead_of=("a", "b"), overhead=0.5)]) == [
        False,
        True,
        True,
    ]
    assert counting([direct, other, task("w", 1.5, instead_of=("a", "b"), overhead=0.5)]) == [
        True,
        True,
        False,
    ]
    assert counting([task("a", None), task("w", None, instead_of=("a",), overhead=0.5)]) == [True, False]


def test_what_is_far_behind_its_alternative_gets_no_more_rounds() -> None:
    tasks = [task("a", 2.0), task("b", 2.0), task("w", 1.0, instead_of=("a",), overhead=0.1)]
    states = for_scheduler(tasks, [state(2.0), state(2.0), state(1.0)])
    assert [state.exhausted for state in states] == [True, False, False]
    assert states[0].weight == 0


def test_an_alternative_far_behind_gets_no_more_rounds_either() -> None:
    tasks = [task("a", 1.0), task("b", 1.2), task("w", 1.4, instead_of=("a", "b"), overhead=0.0)]
    states = [state(1.0), state(1.2), state(1.4)]
    assert not for_scheduler(tasks, states)[2].exhausted  # it may yet win where the other kernel is slow
    tasks[2] = task("w", 1.4, instead_of=("a", "b"), overhead=0.2)
    assert for_scheduler(tasks, states)[2].exhausted


def test_each_gets_a_first_round() -> None:
    tasks = [task("a", 2.0), task("w", 1.0, instead_of=("a",), overhead=0.0)]
    states = for_scheduler(tasks, [state(2.0, rounds=0), state(1.0)])
    assert not any(state.exhausted for state in states)
