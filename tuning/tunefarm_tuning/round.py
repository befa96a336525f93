"""One round of tuning: ask, build, measure, tell. `tune` and the service's tuning step both run on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

from tunefarm_tuning.batch import Batch, BatchPlan, run_batch
from tunefarm_tuning.config import Config
from tunefarm_tuning.measure import BuildResult, DeviceInfo, Failure, MeasureOption, MeasureResult, Outcome
from tunefarm_tuning.noise import relative_noise
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.tuner.base import TrialResult, Tuner

_REFUSED_PER_PLACE = 8
"""Refused candidates per place of a round that are replaced by others before the round ends with fewer trials."""


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
        truncated: Timing was cut short: the kernel is hopeless (`MeasureResult.truncated`).
        confirmed: From the measurement of the best side by side (see `confirm_best`).
        replaced: The config was refused, and another was tried in its place: nothing was built, and no budget is
            spent on it.
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
    truncated: bool = False
    confirmed: bool = False
    replaced: bool = False

    @property
    def cost_sec(self) -> float | None:
        """Median of the samples; None where there are none."""
        return median(self.samples_sec) if self.samples_sec else None

    @property
    def noise(self) -> float | None:
        """Spread of the samples relative to their median; None where there are too few."""
        return relative_noise(self.samples_sec)

    @property
    def is_trial(self) -> bool:
        """Whether it is recorded and counted: it says something about the candidate, and took a place of its round."""
        return self.outcome is not Outcome.INFRASTRUCTURE_ERROR and not self.replaced

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
            extra: More facts to keep with it, beside ``run_sec``, ``noise``, ``truncated`` and ``confirmed``.
        """
        facts: dict[str, Any] = {"run_sec": self.run_sec}
        if self.noise is not None:
            facts["noise"] = round(self.noise, 6)
        if self.truncated:
            facts["truncated"] = True
        if self.confirmed:
            facts["confirmed"] = True
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
            extra={**facts, **(extra or {})},
        )


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

    A candidate that is refused (`Outcome.INSTANTIATION_ERROR`: ten milliseconds, nothing built) takes no place of the
    round while half of the places are free and fewer than 8 per place were refused: the tuner is told, and asked for
    others. Refused ones are then no trials (`TrialOutcome.replaced`), unless the round found nothing else: then up to
    `n` of them are, so that a budget ends even where everything is refused.

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
    is_cancelled = cancelled or (lambda: False)
    found: list[TrialOutcome] = []
    fruitless = 0
    while not is_cancelled():
        taken = [outcome for outcome in found if not _is_refused(outcome)]
        refused = len(found) - len(taken)
        full = 2 * len(taken) >= n or refused >= _REFUSED_PER_PLACE * n
        if full or fruitless >= max(tuner.patience, n):
            break
        asked = tuner.ask(n - len(taken))
        if not asked:
            break
        outcomes = _try_all(tuner, task, asked, measure_option, best_sec, is_cancelled)
        fruitless = 0 if outcomes else fruitless + len(asked)
        found += outcomes
        kinds = {outcome.outcome for outcome in outcomes}
        if outcomes and (Outcome.INSTANTIATION_ERROR not in kinds or Outcome.INFRASTRUCTURE_ERROR in kinds):
            break  # what is missing was repetitions, or the device is away
        costs = [one.cost_sec for one in outcomes if one.cost_sec is not None and not one.truncated]
        best_sec = min([*costs, *([best_sec] if best_sec is not None else [])], default=None)
    return _with_replaced(found, n)


def _is_refused(outcome: TrialOutcome) -> bool:
    return outcome.outcome is Outcome.INSTANTIATION_ERROR


def _with_replaced(found: Sequence[TrialOutcome], n: int) -> tuple[TrialOutcome, ...]:
    """Mark the refused candidates that take no place."""
    if all(_is_refused(outcome) for outcome in found):
        return (*found[:n], *(replace(outcome, replaced=True) for outcome in found[n:]))
    return tuple(replace(one, replaced=True) if _is_refused(one) else one for one in found)


def _try_all(
    tuner: Tuner,
    task: TuningTask,
    asked: Sequence[Config],
    measure_option: MeasureOption,
    best_sec: float | None,
    is_cancelled: Callable[[], bool],
) -> tuple[TrialOutcome, ...]:
    met: set[str] = set()

    def is_new(build: BuildResult) -> bool:
        new = build.config.key not in met and tuner.result_of(build.config) is None
        met.add(build.config.key)
        return new

    batch = run_batch(
        BatchPlan(
            task=task,
            configs=asked,
            option=measure_option,
            rival_sec=best_sec,
            is_new=is_new,
            is_cancelled=is_cancelled,
        )
    )
    now = time.time()
    outcomes = {
        i: trial_outcome(
            asked[i], batch.builds[i], batch.measured.get(i), measured_at=now, space_key=tuner.space.key
        )
        for i in batch.fresh
    }
    if is_cancelled():
        outcomes = {i: o for i, o in outcomes.items() if o.outcome is Outcome.OK}
    tuner.tell([outcome.to_result() for outcome in outcomes.values()])
    tuner.tell(_repetitions(tuner, asked, batch))
    return tuple(outcomes.values())


def _repetitions(tuner: Tuner, asked: Sequence[Config], batch: Batch) -> list[TrialResult]:
    """Return what became of the candidates that repeat an earlier trial, or another of the batch."""
    return [
        TrialResult(asked=asked[i], config=build.config, outcome=earlier.outcome, cost_sec=earlier.cost_sec)
        for i, build in sorted(batch.builds.items())
        if i not in batch.fresh and (earlier := tuner.result_of(build.config)) is not None
    ]


def trial_outcome(
    asked: Config,
    build: BuildResult,
    measured: MeasureResult | None,
    *,
    measured_at: float,
    space_key: str,
    confirmed: bool = False,
) -> TrialOutcome:
    """Return how a candidate ended, of what its build and its measurement said."""
    failure = build.failure or (measured.failure if measured else None)
    samples = measured.samples_sec if measured else ()
    if failure is None and not samples:
        failure = Failure(Outcome.INFRASTRUCTURE_ERROR, "the runner gave neither samples nor a failure")
    if failure is None and (odd := [one for one in samples if not 0.0 < one < inf]):
        # A record of that could not be read again, and no model could learn from it.
        failure = Failure(Outcome.RUN_ERROR, f"a call was timed at {odd[0]} s")
    return TrialOutcome(
        asked=asked,
        config=build.config,
        outcome=failure.outcome if failure else Outcome.OK,
        samples_sec=() if failure else samples,
        message=failure.message if failure else "",
        build_sec=build.build_sec,
        run_sec=measured.run_sec if measured else 0.0,
        measured_at=measured_at,
        space_key=space_key,
        truncated=measured.truncated if measured and not failure else False,
        confirmed=confirmed,
    )
