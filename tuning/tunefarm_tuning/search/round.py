"""One round of tuning: ask and build, measure and tell. `tune` and the service's tuning step both run on it.

If the device is another machine, the first half may run while an earlier round is still being measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import BuildResult, MeasureOption, Runner
from tunefarm_tuning.search.candidates import CandidateFeed, Candidates, Claim, NumberedBuild, repetition
from tunefarm_tuning.search.measuring import RoundMeasurement
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
    """Try up to `n` new configs, and tell the tuner their outcomes.

    A candidate whose config as applied was tried before is not measured again: the tuner is told the earlier result,
    and the candidate is not a trial of this round. So a round may have fewer than `n` trials. Artifacts are deleted
    after measuring.

    A refused candidate (`Outcome.INSTANTIATION_ERROR`) does not count in the round while others can be proposed (see
    `Candidates`): it is not a trial (`TrialOutcome.replaced`). If all candidates are refused, up to `n` of them are
    trials, so that the budget ends in any case.

    If the runner's device is another machine, each candidate is measured as soon as it is built. Otherwise all builds
    end before the first measurement, since they would disturb it.

    Args:
        tuner: The tuner, told all earlier results of the task.
        task: The task to tune.
        n: Number of candidates to build.
        measure_option: Builder and runner.
        best_sec: Best known cost of the task: a kernel that is much slower is timed only briefly.
        cancelled: Checked between the parts of the round. If true, failed candidates are omitted, since the canceller
            may have closed the builder or the runner.

    Returns:
        The outcomes in the order of proposal, all different as applied. Infrastructure errors are not trials
        (`TrialOutcome.is_trial`). Empty if the round was cancelled or the space is exhausted: it has no new config, or
        as many proposals in a row as the tuner's `patience` were tried before.
    """
    return prepare_round(tuner, task, n, measure_option, cancelled=cancelled).measure(best_sec)


def prepare_round(
    tuner: Tuner | Callable[[], Tuner],
    task: TuningTask,
    n: int,
    measure_option: MeasureOption,
    *,
    cancelled: Callable[[], bool] | None = None,
    claim: Claim | None = None,
    after: PreparedRound | None = None,
) -> PreparedRound:
    """Begin a round: ask the tuner and build its candidates in the background, while another round is measured.

    If building would disturb the measurement (`Runner.shares_host`), nothing happens before `PreparedRound.measure`.

    Args:
        tuner: The tuner, or a function that returns it, called in the background.
        task: The task to tune.
        n: Number of candidates to build.
        measure_option: Builder and runner.
        cancelled: As for `run_round`.
        claim: Called in the background with keys of proposed configs; returns those that this round may try. The tuner
            is asked for others instead of those it leaves out. Without it, all may be tried.
        after: The round that was prepared before, if it is not measured yet. The tuner is asked once that round has begun to
            build. If both are of one task, the tuner is asked without the results of that round, even if they come early:
            equal seeds give equal rounds.
    """
    return PreparedRound(
        tuner, task, n, measure_option, cancelled=cancelled or (lambda: False), claim=claim, after=after
    )


class PreparedRound:
    """A round whose candidates are being proposed and built, from `prepare_round`. It is measured or discarded once.

    Concurrency: one caller. The round's own thread asks the tuner and the caller tells it, never both at a time.
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
        claim: Claim | None = None,
    ) -> None:
        self._task = task
        self._n = n
        self._builder = option.builder
        self._runner = option.runner
        self._is_cancelled = cancelled
        open_tuner = tuner if callable(tuner) else lambda: tuner
        self.candidates = Candidates(open_tuner, task, n, option.builder, cancelled, claim)
        self._feed: CandidateFeed | None = None
        self._after = after
        self._followers: list[PreparedRound] = []
        self._is_over = self._is_told = False
        self._build_secs: list[float] = []
        self._measuring_sec = 0.0
        if not self._runner.shares_host:
            self._feed = CandidateFeed(self.candidates, after.followed_by(self) if after else ())

    def followed_by(self, follower: PreparedRound, *, latest: bool = True) -> list[threading.Event]:
        """Register a round that is prepared after this one; return the events that it has to wait for.

        A round of the same task asks the tuner after this one has stopped asking and before the tuner learns its results.
        """
        events = [] if self._after is None else self._after.followed_by(follower, latest=False)
        if not self._is_told and follower._task == self._task:
            self._followers.append(follower)
            events.append(self.candidates.settled)
        if latest:
            events.append(self.candidates.begun)
        return events

    @property
    def passed_over(self) -> bool:
        """Whether the tuner proposed a config that could not be claimed."""
        return self.candidates.passed_over

    @property
    def saved_share(self) -> float:
        """Return the share of the round's time that preparing it ahead saves; 0 before it is measured.

        Alone, a round takes the time to ask, and then to build and to measure, which overlap except for the first kernel.
        Prepared ahead, it takes the longer of measuring it and its share of the builders' time.
        """
        if not self._build_secs:
            return 0.0
        builders_sec = sum(self._build_secs) / self._builder.workers
        measuring_sec = min(self._build_secs) + self._measuring_sec
        alone_sec = self.candidates.asking_sec + max(measuring_sec, *self._build_secs, builders_sec)
        return 1.0 - max(self._measuring_sec, builders_sec) / alone_sec if alone_sec > 0 else 0.0

    def wait_begun(self) -> None:
        """Return once the tuner has proposed and building has begun; at once if the round is not prepared ahead."""
        if self._feed is not None:
            self.candidates.begun.wait()

    def wait_settled(self, timeout_sec: float) -> bool:
        """Wait until the round asks its tuner no more; return False if that takes longer than the timeout."""
        return self.candidates.settled.wait(timeout_sec)

    def measure(
        self, best_sec: float | None = None, *, at_most: int | None = None, runner: Runner | None = None
    ) -> tuple[TrialOutcome, ...]:
        """Measure the candidates as they are built, and tell the tuner their outcomes.

        Args:
            best_sec: As for `run_round`.
            at_most: Maximum number of trials; the tuner may propose the others again.
            runner: The runner of another device of the same kind, instead of the one that the round was prepared for.

        Returns:
            As `run_round`.

        Raises:
            Exception: Any exception of the tuner or the builder.
        """
        self._end()
        runner = runner or self._runner
        measurement = RoundMeasurement(self._task, runner, best_sec)
        try:
            if self._feed is not None:
                repeated = self._measure_as_built(self._feed, measurement, at_most)
            else:
                repeated = self._measure_after_building(measurement)
        finally:
            runner.release()
            self._stop()
        tuner = self.candidates.tuner
        if tuner is None:
            return ()
        unmeasured = self._configs_without({*measurement.outcomes, *repeated})
        if measurement.lost is not None:
            measurement.fail_as_lost(unmeasured, measurement.lost, space_key=tuner.space.key)
        outcomes = dict(sorted(measurement.outcomes.items()))
        if self._is_cancelled():
            outcomes = {
                number: outcome for number, outcome in outcomes.items() if outcome.outcome is Outcome.OK
            }
        for follower in self._followers:
            follower.candidates.settled.wait()
        self._is_told = True
        self._after = None
        reported = self.candidates.reported
        tuner.tell([outcome for number, outcome in outcomes.items() if number not in reported])
        tuner.tell(self._repetitions(tuner, repeated))
        if measurement.lost is None:
            tuner.tell([_not_tried(config) for config in unmeasured.values()])
        return _with_replaced(tuple(outcomes.values()), self._n)

    def discard(self) -> None:
        """End the running work, delete the kernels, and let the tuner propose their configs again.

        Calls after the first, or after `measure`, have no effect.
        """
        if not self._is_over:
            self._end()
            self._stop()
            if self.candidates.tuner is not None:
                unreported = self._configs_without(self.candidates.reported)
                self.candidates.tuner.tell([_not_tried(config) for config in unreported.values()])

    def _measure_after_building(self, measurement: RoundMeasurement) -> dict[int, BuildResult]:
        """Build all candidates, then measure them; return those that repeat earlier trials, by number."""
        candidates = self.candidates
        builds: dict[int, BuildResult] = {}
        try:
            builds.update(candidates)  # keeps the built kernels if the builder fails
            if self._is_cancelled():
                return {}
            new = {number: build for number, build in builds.items() if number not in candidates.repeated}
            self._measure(measurement, new)
        finally:
            for build in builds.values():
                build.delete_artifact()
        return {number: build for number, build in builds.items() if number in candidates.repeated}

    def _measure_as_built(
        self, feed: CandidateFeed, measurement: RoundMeasurement, at_most: int | None
    ) -> dict[int, BuildResult]:
        """Measure each candidate when it is built; return those that repeat earlier trials, by number."""
        repeated: dict[int, BuildResult] = {}
        for number, build in feed:
            try:
                if self._is_cancelled():
                    break
                self._build_secs.append(build.build_sec)
                if self._is_new((number, build)):
                    began = time.monotonic()
                    self._measure(measurement, {number: build})
                    self._measuring_sec += time.monotonic() - began
                else:
                    repeated[number] = build
            finally:
                build.delete_artifact()
            if measurement.lost is not None or (at_most is not None and measurement.num_counted >= at_most):
                break
        return repeated

    def _measure(self, measurement: RoundMeasurement, builds: Mapping[int, BuildResult]) -> None:
        if builds:
            assert self.candidates.tuner is not None
            space_key = self.candidates.tuner.space.key
            measurement.measure(self.candidates.configs, builds, space_key=space_key)

    def _is_new(self, candidate: NumberedBuild) -> bool:
        """Return whether a candidate is still new: an earlier round of the task may have measured its config meanwhile."""
        number, build = candidate
        tuner = self.candidates.tuner
        if number in self.candidates.repeated:
            return False
        return number in self.candidates.reported or tuner is None or tuner.result_of(build.config) is None

    def _repetitions(self, tuner: Tuner, repeated: Mapping[int, BuildResult]) -> list[TrialResult]:
        """Return the results of the candidates that repeat an earlier trial, or another of the round."""
        return [
            repetition(self.candidates.configs[number], earlier)
            for number, build in sorted(repeated.items())
            if number not in self.candidates.reported
            and (earlier := tuner.result_of(build.config)) is not None
        ]

    def _configs_without(self, numbers: Collection[int]) -> dict[int, Config]:
        """Return the configs of all candidates but some, by number."""
        return {
            number: config for number, config in enumerate(self.candidates.configs) if number not in numbers
        }

    def _end(self) -> None:
        if self._is_over:
            raise InvariantError("a prepared round can be measured or discarded once")
        self._is_over = True

    def _stop(self) -> None:
        if self._feed is not None:
            self._feed.stop()


def _not_tried(config: Config) -> TrialResult:
    return TrialResult(asked=config, config=config, outcome=Outcome.INFRASTRUCTURE_ERROR)


def _with_replaced(outcomes: Sequence[TrialOutcome], n: int) -> tuple[TrialOutcome, ...]:
    """Mark the refused candidates that others have replaced: they are no trials."""
    refused = [outcome.outcome is Outcome.INSTANTIATION_ERROR for outcome in outcomes]
    if all(refused):
        return (*outcomes[:n], *(replace(outcome, replaced=True) for outcome in outcomes[n:]))
    return tuple(
        replace(outcome, replaced=True) if is_refused else outcome
        for outcome, is_refused in zip(outcomes, refused, strict=True)
    )
