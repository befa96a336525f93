"""One round of tuning: ask, build, measure, tell. `tune` and the service's tuning step both run on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tunefarm_tuning.config import Config
from tunefarm_tuning.measure import (
    BuildInput,
    BuildResult,
    DeviceInfo,
    Failure,
    MeasureInput,
    MeasureOption,
    MeasureResult,
    Outcome,
)
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.tuner.base import TrialResult, Tuner

_FRUITLESS_PROPOSALS = 32
"""Proposals in one round that all apply to configs tried before: after these the space counts as spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """One trial of a round: what was asked, what it became, how it ended.

    Attributes:
        asked: The config that the tuner proposed.
        config: The config as applied; a trial is identified by it.
        message: What went wrong, where something did.
        samples_sec: Raw samples; empty unless `outcome` is ok.
        build_sec: Wall-clock of applying and building.
        run_sec: Wall-clock of measuring.
        measured_at: Unix time, seconds.
        space_key: Of the space that `config` belongs to.
    """

    asked: Config
    config: Config
    outcome: Outcome
    samples_sec: tuple[float, ...] = ()
    message: str = ""
    build_sec: float = 0.0
    run_sec: float = 0.0
    measured_at: float = 0.0
    space_key: str = ""

    @property
    def cost_sec(self) -> float | None:
        """Median of the samples; None where there are none."""
        return median(self.samples_sec) if self.samples_sec else None

    @property
    def is_trial(self) -> bool:
        """Whether it says something about the candidate, and so is recorded and counted."""
        return self.outcome is not Outcome.INFRASTRUCTURE_ERROR

    def to_result(self) -> TrialResult:
        """Return what a tuner is told."""
        return TrialResult(asked=self.asked, config=self.config, outcome=self.outcome, cost_sec=self.cost_sec)

    def to_record(
        self,
        task: TuningTask,
        device: DeviceInfo,
        *,
        tuner: str,
        toolchain: str,
        extra: Mapping[str, Any] | None = None,
    ) -> TuningRecord:
        """Return the record of this trial.

        Args:
            task: The task that was tuned.
            device: What was measured on.
            tuner: The tuner's name.
            toolchain: As `toolchain.toolchain_key` returns it.
            extra: More facts to keep with it.
        """
        return TuningRecord(
            workload_key=task.workload.key,
            target_key=task.target.key,
            device_model=device.model,
            toolchain=toolchain,
            space_key=self.space_key,
            config=self.config,
            outcome=self.outcome,
            samples_sec=self.samples_sec,
            build_sec=self.build_sec,
            measured_at=self.measured_at,
            tuner=tuner,
            message=self.message,
            extra={"run_sec": self.run_sec, **(extra or {})},
        )


def run_round(
    tuner: Tuner,
    task: TuningTask,
    n: int,
    measure_option: MeasureOption,
    *,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[TrialOutcome, ...]:
    """Try up to `n` new configs, and tell the tuner what became of them.

    A candidate whose config as applied was tried before is not measured again: the tuner is told the
    earlier result, and the candidate is no trial of this round. So a round may have fewer than `n` trials.
    Artifacts are deleted once measured.

    Args:
        tuner: Has been told all earlier results of the task.
        task: What to tune.
        n: Candidates to build.
        measure_option: Who builds and who measures.
        cancelled: Asked between the parts of the round. Once it is true, candidates that did not end well are left out:
            whoever cancels may have closed the builder or the runner under them.

    Returns:
        The new trials in the order asked, all different as applied. Infrastructure errors among them are no trials
        (`TrialOutcome.is_trial`). Empty if the space is spent (or the round was cancelled): nothing new is left,
        or 32 proposals in a row were all tried before.
    """
    is_cancelled = cancelled or (lambda: False)
    proposals = 0
    while proposals < max(_FRUITLESS_PROPOSALS, n) and not is_cancelled():
        asked = tuner.ask(n)
        if not asked:
            break
        proposals += len(asked)
        results = _try_all(tuner, task, asked, measure_option, is_cancelled)
        if results or is_cancelled():
            return results
    return ()


def _try_all(
    tuner: Tuner,
    task: TuningTask,
    asked: Sequence[Config],
    measure_option: MeasureOption,
    is_cancelled: Callable[[], bool],
) -> tuple[TrialOutcome, ...]:
    builds = measure_option.builder.build([BuildInput(task=task, config=config) for config in asked])
    try:
        if is_cancelled():
            return ()
        fresh, repeated = _split(tuner, builds)
        ready = [i for i in fresh if builds[i].artifact_path is not None]
        inputs = [MeasureInput(task=task, artifact_path=builds[i].artifact_path) for i in ready]  # type: ignore[arg-type]
        measured = dict(zip(ready, measure_option.runner.run(inputs) if inputs else [], strict=True))
    finally:
        for build in builds:
            if build.artifact_path is not None:
                build.artifact_path.unlink(missing_ok=True)
    now = time.time()
    outcomes = {i: _outcome(asked[i], builds[i], measured.get(i), now, tuner.space.key) for i in fresh}
    if is_cancelled():
        outcomes = {i: o for i, o in outcomes.items() if o.outcome is Outcome.OK}
    tuner.tell([outcome.to_result() for outcome in outcomes.values()])
    tuner.tell(
        [
            TrialResult(
                asked=asked[i], config=builds[i].config, outcome=earlier.outcome, cost_sec=earlier.cost_sec
            )
            for i in repeated
            if (earlier := tuner.result_of(builds[i].config)) is not None
        ]
    )
    return tuple(outcomes.values())


def _split(tuner: Tuner, builds: Sequence[BuildResult]) -> tuple[list[int], list[int]]:
    """Return which builds are new as applied, and which repeat an earlier trial or another of this batch."""
    fresh, repeated = [], []
    met: set[str] = set()
    for i, build in enumerate(builds):
        if build.config.key in met or tuner.result_of(build.config) is not None:
            repeated.append(i)
        else:
            met.add(build.config.key)
            fresh.append(i)
    return fresh, repeated


def _outcome(
    asked: Config, build: BuildResult, measured: MeasureResult | None, now: float, space_key: str
) -> TrialOutcome:
    failure = build.failure or (measured.failure if measured else None)
    samples = measured.samples_sec if measured else ()
    if failure is None and not samples:
        failure = Failure(Outcome.INFRASTRUCTURE_ERROR, "the runner gave neither samples nor a failure")
    return TrialOutcome(
        asked=asked,
        config=build.config,
        outcome=failure.outcome if failure else Outcome.OK,
        samples_sec=() if failure else samples,
        message=failure.message if failure else "",
        build_sec=build.build_sec,
        run_sec=measured.run_sec if measured else 0.0,
        measured_at=now,
        space_key=space_key,
    )
