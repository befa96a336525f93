"""Recorded tasks of a replay farm's scenario: config space, trials, seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.runner.replay import Recording
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """A task and its measurements, all as JSON, because the text of a workload holds them.

    Attributes:
        space: `ConfigSpace.to_json`.
        trials: Config, outcome, samples, seconds of building, seconds of measuring, whether it was cut short.
    """

    name: str
    weight: int
    flops: float
    space: Mapping[str, Any]
    trials: tuple[Any, ...]

    @classmethod
    def of(cls, task: TuningTask, space: ConfigSpace, records: Iterable[TuningRecord]) -> RecordedTask:
        """Return the task with its trials: the records of its space. Confirming records had no build of their own."""
        return cls(
            name=task.workload.name,
            weight=task.weight,
            flops=task.workload.flops,
            space=space.to_json(),
            trials=tuple(
                [
                    record.config.to_json(),
                    record.outcome.value,
                    list(record.samples_sec),
                    round(record.build_sec, 6),
                    round(float(record.extra.get("run_sec", 0.0)), 6),
                    record.extra.get("truncated") is True,
                ]
                for record in records
                if record.space_key == space.key and not record.confirmed
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordedTask:
        return cls(**{**data, "trials": tuple(data["trials"])})


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded workload in the form that the engine uses."""

    space: ConfigSpace
    recording: Recording


@lru_cache(maxsize=64)
def replayed(workload_key: str, ir: str) -> Replayed | None:
    """Return the recorded task in a workload's text; None if the scenario simulates its measurements."""
    facts = json.loads(ir)
    if "recorded" not in facts:
        return None
    task = RecordedTask.from_json(facts["recorded"])
    space = ConfigSpace.from_json(task.space)
    records = [
        TuningRecord(
            workload_key=workload_key,
            target_key="",
            device_model="",
            toolchain="",
            space_key=space.key,
            config=Config.from_json(config),
            outcome=Outcome(outcome),
            samples_sec=tuple(samples_sec),
            build_sec=build_sec,
            measured_at=0.0,
            message="" if outcome == Outcome.OK else "recorded",
            extra={"run_sec": run_sec, "truncated": truncated},
        )
        for config, outcome, samples_sec, build_sec, run_sec, truncated in task.trials
    ]
    return Replayed(space, Recording(records, scale=facts["scale"], stand_ins=True))
