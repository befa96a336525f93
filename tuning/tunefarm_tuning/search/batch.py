"""Measuring the candidates of one round, all at once or one after another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import BuildResult, Failure, MeasureInput, MeasureResult, Runner
from tunefarm_tuning.search.candidates import Candidate
from tunefarm_tuning.search.trial_outcome import TrialOutcome, trial_outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask


class Batch:
    """What measuring has shown of a round so far.

    Args:
        task: What is tuned.
        runner: Who measures.
        rival_sec: Best cost known of the task.

    Attributes:
        outcomes: By the candidates' numbers.
        taken: How many of them took a place of the round.
        lost: What the device said when it was lost.
    """

    def __init__(self, task: TuningTask, runner: Runner, rival_sec: float | None) -> None:
        self._task = task
        self._runner = runner
        self._rival_sec = rival_sec
        self.outcomes: dict[int, TrialOutcome] = {}
        self.taken = 0
        self.lost: Failure | None = None

    def measure(self, candidates: Sequence[Candidate]) -> None:
        """Measure the kernels of candidates in one call of the runner. Those whose build failed end with that."""
        inputs = {
            one.number: MeasureInput(task=self._task, artifact_path=path, rival_sec=self._rival_sec)
            for one in candidates
            if (path := one.build.artifact_path) is not None
        }
        answers = self._runner.run(list(inputs.values())) if inputs else []
        results = dict(zip(inputs, answers, strict=True))
        now = time.time()
        for one in candidates:
            result = results.get(one.number)
            self.outcomes[one.number] = trial_outcome(
                one.asked, one.build, result, measured_at=now, space_key=one.space_key
            )
            self.taken += not one.refused
            if result is not None:
                self._learn(result)

    def give_up(self, left: Mapping[int, Config], lost: Failure, *, space_key: str) -> None:
        """Let the candidates that nobody got to fail as the device did: they may be tried again."""
        met = {outcome.config.key for outcome in self.outcomes.values()}
        for number, config in left.items():
            if config.key not in met:
                build = BuildResult(config=config, build_sec=0.0, failure=lost)
                self.outcomes[number] = trial_outcome(
                    config, build, None, measured_at=time.time(), space_key=space_key
                )

    def _learn(self, result: MeasureResult) -> None:
        if result.cost_sec is not None and not result.truncated:
            self._rival_sec = min(result.cost_sec, self._rival_sec or result.cost_sec)
        if result.failure is not None and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
            self.lost = result.failure
