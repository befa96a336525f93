"""Choose the task of a model that gets the next round: the one that should win the most latency per second of tuning.

Source: MetaSchedule's gradient-based task scheduler (and Ansor's before it), with seconds in place of rounds. Ansor
also expects no task to get beyond what like tasks have shown; that did not help in simulation
(`benchmarks/results/scheduling.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from tunefarm_tuning.search.budget import Budget

_WINDOW = 3  # rounds over which recent progress is looked at
_RECENT = (
    0.2  # weight of recent progress in the forecast; the rest of the forecast lets gains fade as 1/rounds
)
_MINOR_SHARE = 0.005  # of the model's operations
_FIRST_SEC_PER_TRIAL = 0.5  # a guess until the first round ends
_FADING = 0.2  # prior of `_fading`
_FADING_ROUNDS = 3  # weight of that prior, in rounds
_HOPELESS_ROUNDS = 3  # rounds without one working kernel after which a task waits behind all others


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """A past round of a task: its trials, and the best cost known after it (None while no kernel worked)."""

    trials: int
    best_sec: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """State of a task for the scheduler, which has no state itself.

    Attributes:
        weight: Calls per inference.
        flops: Floating-point operations of one call; they stand for its cost while that is unknown.
        history: Past rounds, oldest first.
        spent_sec: Seconds of all its rounds.
        best_sec: Best known cost, also from before this run; None if there is none.
        exhausted: Whether its space is exhausted, or the task failed.
    """

    weight: int
    flops: float
    history: tuple[RoundSummary, ...] = ()
    spent_sec: float = 0.0
    best_sec: float | None = None
    exhausted: bool = False

    def as_if_over(self, trials: Sequence[int]) -> TaskState:
        """Return the state as if rounds under way, of so many `trials` each, had taken the usual time and brought no better kernel."""
        num_rounds = len(self.history)
        history = (*self.history, *(RoundSummary(trials=count, best_sec=self.best_sec) for count in trials))
        spent_sec = self.spent_sec * len(history) / num_rounds if num_rounds else self.spent_sec
        return replace(self, history=history, spent_sec=spent_sec)


class TaskScheduler:
    """Picks tasks. It keeps no state: equal arguments give equal picks, in any process.

    First every task gets one round, those with most operations (of one call × calls) first, because a budget may end
    before the last of them. Then each round goes to the task that should win the most latency of the model per second.
    """

    def next(self, states: Sequence[TaskState]) -> int | None:
        """Return the index of the task for the next round; None if all are exhausted."""
        alive = [i for i, state in enumerate(states) if not state.exhausted]
        if not alive:
            return None
        untouched = [i for i in alive if not states[i].history]
        if untouched:
            # A task with a kernel from an earlier run can wait: it is tuned even if the budget ends before its round.
            return min(
                untouched,
                key=lambda i: (states[i].best_sec is not None, -states[i].weight * states[i].flops, i),
            )
        sec_per_flop = self._sec_per_flop(states)
        return max(alive, key=lambda i: (*_expected_gain(states[i], sec_per_flop), -i))

    def round_size(
        self,
        states: Sequence[TaskState],
        index: int,
        most: int,
        budget: Budget,
        *,
        trials: int,
        wall_sec: float,
    ) -> int:
        """Return how many candidates the round of the picked task should try.

        A first round is shortened if the budget would otherwise end before every task has had one: a task without a
        tuned kernel runs by its default schedule, and one slow default schedule can cost more than all other tasks win. The
        first round of a task with a small share of the model's operations is shortened too: if it matters, it gets more later.

        Args:
            states: All tasks.
            index: The picked task's.
            most: The usual size of a round.
            budget: Budget of the whole run.
            trials: Trials spent so far, over all tasks.
            wall_sec: Seconds spent so far, over all tasks.
        """
        untouched = sum(not (s.exhausted or s.history) and s.best_sec is None for s in states)
        if states[index].history or states[index].best_sec is not None:
            untouched = 0
        size = most
        if untouched and self._is_minor(states, index):
            size = max(1, most // 3)
        if budget.trials is not None:
            remaining = budget.trials - trials
            size = min(size, remaining, remaining // untouched if untouched else remaining)
        if budget.wall_sec is not None:
            left_sec = max(budget.wall_sec - wall_sec, 0.0)
            remaining = int(left_sec / max(self.sec_per_trial(states, index), 1e-3))
            size = min(size, remaining // untouched if untouched else remaining)
        return max(1, size)

    def gain_per_min(self, states: Sequence[TaskState]) -> float | None:
        """Return the expected reduction of the model's latency in the next minute, as a share from 0 to 1.

        The forecast of `next` only ranks tasks; this one estimates a value, from how gains have faded in this run over
        all its tasks. None while it cannot be estimated: a task has had no round yet, or has no kernel but may still get one.
        """
        alive = [state for state in states if not state.exhausted]
        if any(
            not state.history or (state.best_sec is None and len(state.history) < _HOPELESS_ROUNDS)
            for state in alive
        ):
            return None
        latency_sec = sum(state.weight * (state.best_sec or 0.0) for state in states)
        return _gain_within(60.0, alive, _fading(states)) / latency_sec if latency_sec > 0 else None

    @staticmethod
    def sec_per_trial(states: Sequence[TaskState], index: int) -> float:
        """Return the seconds per trial of the task, or of all tasks if it has had no round."""
        for group in ([states[index]], states):
            trials = sum(summary.trials for state in group for summary in state.history)
            if trials:
                return sum(state.spent_sec for state in group) / trials
        return _FIRST_SEC_PER_TRIAL

    @staticmethod
    def _is_minor(states: Sequence[TaskState], index: int) -> bool:
        total = sum(state.weight * state.flops for state in states)
        return states[index].weight * states[index].flops < _MINOR_SHARE * total

    @staticmethod
    def _sec_per_flop(states: Sequence[TaskState]) -> float:
        """Return the median of the tasks that have a kernel, to guess the cost of those without."""
        known = [s.best_sec / s.flops for s in states if s.best_sec is not None and s.flops > 0]
        return median(known) if known else 1e-9


def _expected_gain(state: TaskState, sec_per_flop: float) -> tuple[bool, float]:
    """Return whether the task may still get a kernel, and the seconds of model latency that one second of tuning should win."""
    rounds = len(state.history)
    sec_per_round = max(state.spent_sec / rounds, 1e-3)
    if state.best_sec is None:
        # The first working kernel would win the whole cost, but each failed round makes one less likely.
        is_hopeful = rounds < _HOPELESS_ROUNDS
        return is_hopeful, state.weight * state.flops * sec_per_flop / (2.0**rounds) / sec_per_round
    window = [r.best_sec for r in state.history[-_WINDOW - 1 :] if r.best_sec is not None]
    recent = (window[0] - window[-1]) / (len(window) - 1) if len(window) > 1 else 0.0
    gain = _RECENT * max(recent, 0.0) + (1 - _RECENT) * state.best_sec / rounds
    return True, state.weight * gain / sec_per_round


def _fading(states: Sequence[TaskState]) -> float:
    """Return f such that the n-th round of a task makes its cost smaller by the share f / n, on average over this run."""
    total, rounds = _FADING * _FADING_ROUNDS, _FADING_ROUNDS
    for state in states:
        bests = [summary.best_sec for summary in state.history]
        for number, (before, after) in enumerate(pairwise(bests), start=1):
            if before is not None and after is not None:
                total += number * max(before - after, 0.0) / before
                rounds += 1
    return total / rounds


def _gain_within(sec: float, states: Sequence[TaskState], fading: float) -> float:
    """Return the seconds of model latency that `sec` seconds of tuning should win, spent on the tasks where they win most.

    If a task's cost falls as rounds ** -fading, and its rounds take equally long, then its gain per second is
    weight x cost x fading / time spent, which falls while it is tuned. Tuning the task with the highest rate at each moment
    brings all tuned tasks down to one common rate: `rate`.
    """
    worth = [
        (state.weight * state.best_sec * fading, max(state.spent_sec, 1e-3))
        for state in states
        if state.best_sec is not None
    ]
    worth.sort(key=lambda pair: -pair[0] / pair[1])
    gains, spent_sec, rate = 0.0, sec, 0.0
    count = 0
    for gain, task_sec in worth:
        if gain / task_sec <= rate:
            break
        gains, spent_sec, count = gains + gain, spent_sec + task_sec, count + 1
        rate = gains / spent_sec
    won_sec = 0.0
    for gain, task_sec in worth[:count]:
        if gain > 0:
            won_sec += gain / fading * (1.0 - float((rate * task_sec / gain) ** fading))
    return won_sec
