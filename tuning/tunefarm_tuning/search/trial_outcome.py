"""How a candidate of a round ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Any

from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import BuildResult, DeviceInfo, Failure, MeasureResult
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner.base import TrialResult
from tunefarm_tuning.workload.task import TuningTask


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
        facts: More that the measurement told (`MeasureResult.facts`).
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
    facts: Mapping[str, Any] = field(default_factory=dict)

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
            extra: More facts to keep with it, beside ``run_sec``, ``noise``, ``truncated``, ``confirmed`` and `facts`.
        """
        facts: dict[str, Any] = {**self.facts, "run_sec": self.run_sec}
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
        facts=measured.facts if measured and not failure else {},
    )
