"""Measure candidates, and turn the results into outcomes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import inf

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import BuildResult, Failure, MeasureInput, MeasureResult, Runner
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask


class RoundMeasurement:
    """Measures the candidates of one round, all at once or one after another, and collects their outcomes.

    Attributes:
        outcomes: By the candidates' numbers.
        num_counted: How many of them count in the round; refused candidates do not count.
        lost: The device's failure, once it was lost.
    """

    def __init__(self, task: TuningTask, runner: Runner, best_sec: float | None) -> None:
        self._task = task
        self._runner = runner
        self._rival_sec = best_sec
        self.outcomes: dict[int, TrialOutcome] = {}
        self.num_counted = 0
        self.lost: Failure | None = None

    def measure(
        self, configs: Sequence[Config], builds: Mapping[int, BuildResult], *, space_key: str
    ) -> None:
        """Measure built candidates, by their index in `configs`, in one call of the runner; failed builds end with their failure."""
        inputs = {
            number: MeasureInput(task=self._task, artifact_path=path, rival_sec=self._rival_sec)
            for number, build in builds.items()
            if (path := build.artifact_path) is not None
        }
        results = self._runner.run(list(inputs.values())) if inputs else []
        measured = dict(zip(inputs, results, strict=True))
        now = time.time()
        for number, build in builds.items():
            result = measured.get(number)
            self.outcomes[number] = trial_outcome(
                configs[number], build, result, measured_at=now, space_key=space_key
            )
            self.num_counted += not build.refused
            if result is not None:
                self._note(result)

    def fail_as_lost(self, unmeasured: Mapping[int, Config], lost: Failure, *, space_key: str) -> None:
        """Give unmeasured configs, by number, the device's failure, so that they may be tried again; not those that have an outcome."""
        applied = {outcome.config.key for outcome in self.outcomes.values()}
        for number, config in unmeasured.items():
            if config.key not in applied:
                build = BuildResult(config=config, build_sec=0.0, failure=lost)
                self.outcomes[number] = trial_outcome(
                    config, build, None, measured_at=time.time(), space_key=space_key
                )

    def _note(self, result: MeasureResult) -> None:
        if result.cost_sec is not None and not result.truncated:
            self._rival_sec = min(result.cost_sec, self._rival_sec or result.cost_sec)
        if result.failure is not None and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
            self.lost = result.failure


def trial_outcome(
    asked: Config,
    build: BuildResult,
    measured: MeasureResult | None,
    *,
    measured_at: float,
    space_key: str,
    confirmed: bool = False,
) -> TrialOutcome:
    """Return how a candidate ended, given its build and its measurement (None if it was not measured)."""
    failure = build.failure or (measured.failure if measured else None)
    samples = measured.samples_sec if measured else ()
    if failure is None and not samples:
        failure = Failure(Outcome.INFRASTRUCTURE_ERROR, "the runner gave neither samples nor a failure")
    if failure is None and (impossible := [sec for sec in samples if not 0.0 < sec < inf]):
        # A record with such a sample could not be read again, and no model could learn from it.
        failure = Failure(Outcome.RUN_ERROR, f"a call was timed at {impossible[0]} s")
    return TrialOutcome(
        asked=asked,
        config=build.config,
        outcome=failure.outcome if failure else Outcome.OK,
        samples_sec=() if failure else samples,
        message=failure.message if failure else "",
        code=failure.code if failure else "",
        build_sec=build.build_sec,
        run_sec=measured.run_sec if measured else 0.0,
        measured_at=measured_at,
        space_key=space_key,
        truncated=measured.truncated if measured and not failure else False,
        confirmed=confirmed,
        facts={**build.facts, **(measured.facts if measured and not failure else {})},
        origin=measured.origin if measured else None,
    )
