"""The rounds of a run of `tune`: picks the next task, and prepares its round while others are measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.records.transfer import TaskHistory, choose_histories
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.progress import TaskProgress, scheduler_states
from tunefarm_tuning.search.round import PreparedRound, prepare_round
from tunefarm_tuning.search.scheduler import TaskScheduler
from tunefarm_tuning.tuner import Tuner

_DEPTH = 2
"""Rounds that are prepared ahead. With two, a round with long builds leaves neither builders nor device idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The budget of a run's search, and how much of it is spent."""

    budget: Budget
    trials: int
    wall_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRound:
    """A round to be measured.

    Attributes:
        task: Index of its task.
        size: Trials at most.
        blind: Whether it was prepared without the results of the task's latest rounds: its configs may all repeat theirs.
    """

    task: int
    size: int
    prepared: PreparedRound
    blind: bool = False


class RoundQueue:
    """Picks tasks and prepares their rounds, two ahead if the device is another machine.

    A round is prepared ahead when the measurement of another begins. Its task is picked as if the rounds before it were over
    and had found nothing better, and its tuner knows the results of that moment: so its candidates do not depend on how long
    anything takes. A task with a round under way gets another one ahead only if that pays (see `_pays_ahead`).

    Concurrency: one caller. Tuners are opened and asked in the rounds' own threads, one at a time.
    """

    def __init__(
        self,
        tasks: Sequence[TaskProgress],
        option: MeasureOption,
        *,
        round_size: int,
        histories: Sequence[TaskHistory],
    ) -> None:
        self._tasks = tasks
        self._option = option
        self._round_size = round_size
        self._histories = list(histories)
        self._scheduler = TaskScheduler()
        self._opened: set[int] = set()
        self._current: NextRound | None = None
        self._ahead: deque[NextRound] = deque()

    def next(self, spent: Spent) -> NextRound | None:
        """Return the round to measure now, and start preparing the next ones; None if all tasks are exhausted."""
        self._current = current = self._take_ahead(spent) or self._pick(spent)
        if current is not None and not self._option.runner.shares_host:
            current.prepared.wait_begun()
            while len(self._ahead) < _DEPTH and (ahead := self._pick_ahead(spent, [current, *self._ahead])):
                self._ahead.append(ahead)
        return current

    def close(self) -> None:
        """Discard the rounds that were not measured. Closes their tuners, which may be minutes into a proposal."""
        for unmeasured in (self._current, *self._ahead):
            if unmeasured is not None:
                self._tasks[unmeasured.task].close()
                unmeasured.prepared.discard()

    def _pick(self, spent: Spent) -> NextRound | None:
        states = scheduler_states(self._tasks)
        picked = self._scheduler.next(states)
        return None if picked is None else self._prepare(picked, self._size(picked, spent))

    def _pick_ahead(self, spent: Spent, under_way: Sequence[NextRound]) -> NextRound | None:
        """Return the round after the running ones; None if none should be prepared."""
        states = scheduler_states(self._tasks)
        trials, wall_sec = spent.trials, spent.wall_sec
        for earlier in under_way:
            trials += earlier.size
            wall_sec += earlier.size * self._scheduler.sec_per_trial(states, earlier.task)
        for index in {earlier.task for earlier in under_way}:
            sizes = [earlier.size for earlier in under_way if earlier.task == index]
            states[index] = states[index].as_if_over(sizes)
        picked = self._scheduler.next(states)
        if picked is None or spent.budget.exhausted_by(
            trials=trials, wall_sec=wall_sec, trials_since_improvement=0
        ):
            return None
        blind = sum(earlier.task == picked for earlier in under_way)
        if blind and not _pays_ahead(self._tasks[picked], blind):
            return None
        size = self._scheduler.round_size(
            states, picked, self._round_size, spent.budget, trials=trials, wall_sec=wall_sec
        )
        return self._prepare(picked, size, after=under_way)

    def _take_ahead(self, spent: Spent) -> NextRound | None:
        """Return the next prepared round, shortened to the budget that remains; None if no round is prepared."""
        while self._ahead:
            ahead = self._ahead.popleft()
            if not self._tasks[ahead.task].state.exhausted:
                return replace(ahead, size=min(ahead.size, self._size(ahead.task, spent)))
            ahead.prepared.discard()
        return None

    def _size(self, index: int, spent: Spent) -> int:
        return self._scheduler.round_size(
            scheduler_states(self._tasks),
            index,
            self._round_size,
            spent.budget,
            trials=spent.trials,
            wall_sec=spent.wall_sec,
        )

    def _prepare(self, index: int, size: int, after: Sequence[NextRound] = ()) -> NextRound:
        prepared = prepare_round(
            self._opener(index),
            self._tasks[index].task,
            size,
            self._option,
            after=after[-1].prepared if after else None,
        )
        blind = any(earlier.task == index for earlier in after)
        return NextRound(task=index, size=size, prepared=prepared, blind=blind)

    def _opener(self, index: int) -> Callable[[], Tuner]:
        """Return a function that opens the task's tuner, with the histories of other tasks as they are now."""
        task = self._tasks[index]
        known = {number: other.known for number, other in enumerate(self._tasks) if number != index}

        def open_tuner() -> Tuner:
            tuner = task.tuner(self._option.builder)
            if not task.has_records:
                self._open_known()
            siblings = [history or self._tasks[number].known for number, history in known.items()]
            tuner.load_history(self._histories_for(task, [history for history in siblings if history]))
            return tuner

        return open_tuner

    def _histories_for(self, task: TaskProgress, siblings: Sequence[TaskHistory]) -> tuple[TaskHistory, ...]:
        """Return the histories that the task's tuner learns from: all but the task's own records."""
        assert task.space is not None
        key = task.task.workload.key
        transferable = [
            # The task has its own records, and those of other devices.
            history
            for history in self._histories
            if history.records
            and (history.records[0].workload_key != key or history.space.key != task.space.key)
        ]
        return choose_histories(task.space, key, [*task.foreign, *siblings, *transferable])

    def _open_known(self) -> None:
        """Open the tasks that have records but no round yet, so that a task without records can learn from them."""
        for number, other in enumerate(self._tasks):
            if other.has_records and number not in self._opened:
                self._opened.add(number)
                with suppress(Exception):  # its own round will show that
                    other.open(self._option.builder)


def _pays_ahead(task: TaskProgress, blind: int) -> bool:
    """Return whether to propose a task's next configs without the results of `blind` rounds of its own.

    A search that has not seen its latest rounds is about as many rounds behind. Preparing ahead saves the time in which
    the device would wait for the first kernel. So it pays as soon as the time saved adds up to those rounds. Where
    building takes longest, nothing is saved, and it never pays (`benchmarks/results/overlap.md`).
    """
    return task.saved_share * len(task.history) >= blind
