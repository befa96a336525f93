"""The outcome of a candidate, for its tuner and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tunefarm_text.quantities import ascii_kernel_shapes
from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import DeviceInfo, SessionOrigin
from tunefarm_tuning.records.record import CONFIRMED, TuningRecord
from tunefarm_tuning.tuner.base import TrialResult
from tunefarm_tuning.workload.task import TuningTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome(TrialResult):
    """A trial of a round: a `TrialResult` with all measurements. Tuners receive it unchanged.

    Attributes:
        cost_sec: Median of the samples; None if there are none.
        message: Error message, if it failed.
        code: What happened, if more is known than the class says (`Failure.code`).
        samples_sec: Raw samples; empty unless `outcome` is ok.
        build_sec: Seconds of applying and building.
        run_sec: Seconds of measuring.
        measured_at: Unix time, seconds.
        space_key: Key of the config's space.
        truncated: Whether timing was shortened since the kernel is much too slow (`MeasureResult.truncated`).
        confirmed: Whether it is a confirmation (see `confirm_best`).
        replaced: Whether the config was refused and another tried instead: nothing was built, and no budget was spent.
        facts: Further facts of the build and the measurement (`BuildResult.facts`, `MeasureResult.facts`).
        origin: The session that it was measured in (`MeasureResult.origin`).
    """

    cost_sec: float | None = field(init=False)
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
    origin: SessionOrigin | None = None
    code: str = ""

    def __post_init__(self) -> None:
        cost_sec = median(self.samples_sec) if self.samples_sec else None
        object.__setattr__(self, "cost_sec", cost_sec)  # the class is frozen

    @property
    def noise(self) -> float | None:
        """Spread of the samples relative to their median; None if there are too few."""
        return relative_noise(self.samples_sec)

    @property
    def is_trial(self) -> bool:
        """Whether it is recorded and counted: it is about the candidate and part of its round."""
        return self.outcome is not Outcome.INFRASTRUCTURE_ERROR and not self.replaced

    def to_result(self) -> TrialResult:
        """Deprecated: a `TrialOutcome` is a `TrialResult` itself."""
        return TrialResult(asked=self.asked, config=self.config, outcome=self.outcome, cost_sec=self.cost_sec)

    @property
    def recorded_facts(self) -> dict[str, Any]:
        """The facts that go with a record: `facts`, ``run_sec``, and as they apply ``noise``, ``truncated``, ``confirmed``."""
        recorded: dict[str, Any] = {**self.facts, "run_sec": self.run_sec}
        if self.noise is not None:
            recorded["noise"] = round(self.noise, 6)
        if self.truncated:
            recorded["truncated"] = True
        if self.confirmed:
            recorded[CONFIRMED] = True
        return recorded

    def to_record(
        self,
        task: TuningTask,
        device: DeviceInfo,
        *,
        tuner: str,
        toolchain: str,
        extra: Mapping[str, Any] | None = None,
    ) -> TuningRecord:
        """Return the record of this trial, with `extra` facts beside `recorded_facts`; `toolchain` is as `toolchain_key` returns it."""
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
            extra={**self.recorded_facts, **(extra or {})},
            kernel=task.workload.name,
            shapes=ascii_kernel_shapes([spec.to_json() for spec in task.workload.args]),
            certificate_sha256=self.origin.certificate_sha256 if self.origin else None,
            ticket_jti=self.origin.ticket_jti if self.origin else None,
        )
