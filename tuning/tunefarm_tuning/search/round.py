"""One round of tuning: ask and build, measure and tell. `tune` and the service's tuning step both run on it.

Where the device is another machine, the first half may go on while an earlier round is still being measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import MeasureOption, Runner
from tunefarm_tuning.search.batch import Batch
from tunefarm_tuning.search.candidate_feed import CandidateFeed
from tunefarm_tuning.search.candidates import Candidate, Candidates
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner.base import TrialResult, Tuner
from tunefarm_tuning.workload.task import TuningTask


def run_round(
    tuner: Tuner,
    task: TuningTask,
    n: int,
    measure_option: MeasureOption,
    *,
    best_sec: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[TrialOutcome, ...]:
    """Try up to `n` new configs, and tell the tuner what became of them.

    A candidate whose config as applied was tried before is not measured again: the tuner is told the
    earlier result, and the candidate is no trial of this round. So a round may have fewer than `n` trials.
    Artifacts are deleted once measured.

    A candidate that is refused (`Outcome.INSTANTIATION_ERROR`) takes no place of the round while others can be asked
    for (see `Candidates`). Refused ones are then no trials (`TrialOutcome.replaced`), unless the round found nothing
    else: then up to `n` of them are, so that a budget ends even where everything is refused.

    Where the runner's device is another machine, each candidate is measured as soon as it is built, while the others
    are being built. Otherwise all builds are over before the first is measured: they would disturb its timing.

    Args:
        tuner: Has been told all earlier results of the task.
        task: What to tune.
        n: Candidates to build.
        measure_option: Who builds and who measures.
        best_sec: Best cost known of the task: what is hopeless against it is timed briefly.
        cancelled: Asked between the parts of the round. Once it is true, candidates that did not end well are left out:
            whoever cancels may have closed the builder or the runner under them.

    Returns:
        What was tried, in the order asked, all different as applied. Infrastructure errors among them are no trials
        (`TrialOutcome.is_trial`). Empty if the space is spent (or the round was cancelled): nothing new is left,
        or as many proposals in a row as the tuner's `patience` were all tried before.
    """
    return prepare_round(tuner, task, n, measure_option, cancelled=cancelled).measure(best_sec)


def prepare_round(
    tuner: Tuner | Callable[[], Tuner],
    task: TuningTask,
    n: int,
    measure_option: MeasureOption,
    *,
    cancelled: Callable[[], bool] | None = None,
    after: PreparedRound | None = None,
) -> PreparedRound:
    """Begin a round: let the tuner propose, and build, in the background, while something else is measured.

    Where building would disturb what is measured (`Runner.shares_host`), nothing happens before `PreparedRound.measure`.

    Args:
        tuner: Whom to ask, or what returns it: that is called in the background.
        task: What to tune.
        n: Candidates to build.
        measure_option: Who builds and who measures.
        cancelled: As of `run_round`.
        after: The round that was prepared before, if it is not measured yet: nothing is asked before that has begun. A
            round of the same task proposes without the results of those before it that were not measured when it was
            prepared, however soon there are some: equal seeds give equal rounds.
    """
    return PreparedRound(tuner, task, n, measure_option, cancelled=cancelled or (lambda: False), after=after)


class PreparedRound:
    """A round that is asked for and being built; `prepare_round` makes it. It is measured or discarded, once.

    Concurrency: one caller. The tuner is asked in a thread of the round's own and told by the caller, never both at
        a time.

    Attributes:
        candidates: What it asked for, and builds.
    """

    def __init__(
        self,
        tuner: Tuner | Callable[[], Tuner],
        task: TuningTask,
        n: int,
        option: MeasureOption,
        *,
        cancelled: Callable[[], bool],
        after: PreparedRound | None,
    ) -> None:
        self._task = task
        self._n = n
        self._builder = option.builder
        self._runner = option.runner
        self._is_cancelled = cancelled
        open_tuner = tuner if callable(tuner) else lambda: tuner
        self.candidates = Candidates(open_tuner, task, n, option.builder, cancelled)
        self._feed: CandidateFeed | None = None
        self._after = after
        self._followers: list[PreparedRound] = []
        self._is_over = self._is_told = False
        self._build_secs: list[float] = []
        self._measuring_sec = 0.0
        if not self._runner.shares_host:
            self._feed = CandidateFeed(self.candidates, after.followed_by(self) if after else ())

    def followed_by(self, follower: PreparedRound, *, latest: bool = True) -> list[threading.Event]:
        """Note a round that is prepared after this one; return what it has to wait for.

        Of the same task, it asks when those before it ask no more, and before the tuner is told of them.
        """
        waits = [] if self._after is None else self._after.followed_by(follower, latest=False)
        if not self._is_told and follower._task == self._task:
            self._followers.append(follower)
            waits.append(self.candidates.settled)
        if latest:
            waits.append(self.candidates.begun)
        return waits

    @property
    def saved_share(self) -> float:
        """Which share of its time is saved by preparing it while others are measured.

        By itself it takes asking, and then building and measuring, which overlap but for the first kernel. Among others
        it takes the longer of measuring and what it costs the builders. 0 before it is measured.
        """
        if not self._build_secs:
            return 0.0
        builders_sec = sum(self._build_secs) / self._builder.workers
        measuring_sec = min(self._build_secs) + self._measuring_sec
        alone_sec = self.candidates.asking_sec + max(measuring_sec, *self._build_secs, builders_sec)
        return 1.0 - max(self._measuring_sec, builders_sec) / alone_sec if alone_sec > 0 else 0.0

    def wait_begun(self) -> None:
        """Return once the tuner has proposed and building has begun; at once where that is not done ahead."""
        if self._feed is not None:
            self.candidates.begun.wait()

    def measure(
        self, best_sec: float | None = None, *, at_most: int | None = None, runner: Runner | None = None
    ) -> tuple[TrialOutcome, ...]:
        """Measure the candidates as they get ready, and tell the tuner what became of them.

        Args:
            best_sec: As of `run_round`.
            at_most: Fewer trials than were prepared; the tuner may propose the others again.
            runner: Another one than it was prepared for: of a device that is as good.

        Returns:
            As `run_round`.

        Raises:
            Exception: Whatever the tuner or the builder raised.
        """
        self._end()
        runner = runner or self._runner
        batch = Batch(self._task, runner, best_sec)
        try:
            repeated = self._measure_each(batch, at_most) if self._feed else self._measure_all(batch)
        finally:
            runner.release()
            self._stop()
        tuner = self.candidates.tuner
        if tuner is None:
            return ()
        left = self._left({*batch.outcomes, *(one.number for one in repeated)})
        if batch.lost is not None:
            batch.give_up(left, batch.lost, space_key=tuner.space.key)
        outcomes = dict(sorted(batch.outcomes.items()))
        if self._is_cancelled():
            outcomes = {number: one for number, one in outcomes.items() if one.outcome is Outcome.OK}
        for follower in self._followers:
            follower.candidates.settled.wait()
        self._is_told = True
        self._after = None
        told = self.candidates.told
        tuner.tell([one.to_result() for number, one in outcomes.items() if number not in told])
        tuner.tell(_repetitions(tuner, [one for one in repeated if one.number not in told]))
        if batch.lost is None:
            tuner.tell([_not_tried(config) for config in left.values()])
        return _with_replaced(tuple(outcomes.values()), self._n)

    def discard(self) -> None:
        """End what is under way, delete the kernels, and let the tuner propose their configs again.

        Calling it again, or after `measure`, does nothing.
        """
        if not self._is_over:
            self._end()
            self._stop()
            if self.candidates.tuner is not None:
                left = self._left(self.candidates.told)
                self.candidates.tuner.tell([_not_tried(config) for config in left.values()])

    def _measure_all(self, batch: Batch) -> list[Candidate]:
        """Build, then measure; return what repeats earlier trials."""
        built: list[Candidate] = []
        try:
            built.extend(self.candidates)
            if self._is_cancelled():
                return []
            batch.measure([one for one in built if one.fresh])
        finally:
            for one in built:
                one.delete()
        return [one for one in built if not one.fresh]

    def _measure_each(self, batch: Batch, at_most: int | None) -> list[Candidate]:
        """Measure what gets ready, as it does; return what repeats earlier trials."""
        assert self._feed is not None
        repeated: list[Candidate] = []
        for one in self._feed:
            try:
                if self._is_cancelled():
                    break
                self._build_secs.append(one.build.build_sec)
                if self._is_new(one):
                    began = time.monotonic()
                    batch.measure([one])
                    self._measuring_sec += time.monotonic() - began
                else:
                    repeated.append(one)
            finally:
                one.delete()
            if batch.lost is not None or (at_most is not None and batch.taken >= at_most):
                break
        return repeated

    def _is_new(self, one: Candidate) -> bool:
        """Return whether it is new by now: what was measured since it was asked for may have become the same."""
        tuner = self.candidates.tuner
        told = one.number in self.candidates.told
        return one.fresh and (told or tuner is None or tuner.result_of(one.build.config) is None)

    def _left(self, done: Collection[int]) -> dict[int, Config]:
        """Return what was asked for, without those that are done; by number."""
        return {number: config for number, config in enumerate(self.candidates.asked) if number not in done}

    def _end(self) -> None:
        if self._is_over:
            raise InvariantError("a prepared round can be measured or discarded once")
        self._is_over = True

    def _stop(self) -> None:
        if self._feed is not None:
            self._feed.stop()


def _not_tried(config: Config) -> TrialResult:
    return TrialResult(asked=config, config=config, outcome=Outcome.INFRASTRUCTURE_ERROR)


def _repetitions(tuner: Tuner, candidates: Sequence[Candidate]) -> list[TrialResult]:
    """Return what became of the candidates that repeat an earlier trial, or another of the round."""
    return [
        TrialResult(
            asked=one.asked, config=one.build.config, outcome=earlier.outcome, cost_sec=earlier.cost_sec
        )
        for one in sorted(candidates, key=lambda one: one.number)
        if (earlier := tuner.result_of(one.build.config)) is not None
    ]


def _with_replaced(found: Sequence[TrialOutcome], n: int) -> tuple[TrialOutcome, ...]:
    """Mark the refused candidates that take no place."""
    refused = [one.outcome is Outcome.INSTANTIATION_ERROR for one in found]
    if all(refused):
        return (*found[:n], *(replace(outcome, replaced=True) for outcome in found[n:]))
    return tuple(
        replace(one, replaced=True) if is_refused else one
        for one, is_refused in zip(found, refused, strict=True)
    )
