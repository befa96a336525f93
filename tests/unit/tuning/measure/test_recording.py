"""Recorded measurements are replayed with their results and durations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, MeasureResult
from tunefarm_tuning.measure.runner.replay import Recording, ReplayRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space

TASK = synthetic_task()
SPACE = tiny_space()
CONFIGS = [SPACE.config_at(i) for i in range(SPACE.size)]


def record(config: Config, outcome: Outcome = Outcome.OK, **extra: object) -> TuningRecord:
    return TuningRecord(
        workload_key=TASK.workload.key,
        target_key=TASK.target.key,
        device_model="m",
        toolchain="t",
        space_key=SPACE.key,
        config=config,
        outcome=outcome,
        samples_sec=(1e-3, 2e-3, 3e-3) if outcome is Outcome.OK else (),
        build_sec=0.5,
        measured_at=0.0,
        message="" if outcome is Outcome.OK else "so it was",
        extra=extra,
    )


def replay(
    recording: Recording, configs: list[Config], rival_sec: float | None = None
) -> tuple[list[MeasureResult | Outcome], list[float]]:
    """Return the result of each config, and the seconds that replaying took."""
    waited: list[float] = []
    with (
        ReplayBuilder({TASK.workload.key: SPACE}, recorded=recording.build, wait=waited.append) as builder,
        ReplayRunner(recording.measure, wait=waited.append) as runner,
    ):
        ended: list[MeasureResult | Outcome] = []
        for built in builder.build([BuildInput(task=TASK, config=config) for config in configs]):
            if built.artifact_path is None:
                assert built.failure is not None
                assert built.failure.message == "so it was"
                ended.append(built.failure.outcome)
                continue
            measured = MeasureInput(task=TASK, artifact_path=built.artifact_path, rival_sec=rival_sec)
            ended += runner.run([measured])
    return ended, waited


def test_measurements_take_what_they_took() -> None:
    first = record(CONFIGS[0], run_sec=0.25)
    (result,), waited = replay(Recording([first]), CONFIGS[:1])
    assert result == MeasureResult(run_sec=0.25, samples_sec=(1e-3, 2e-3, 3e-3))
    assert waited == [0.5, 0.25]
    (result,), waited = replay(Recording([first], scale=0.1), CONFIGS[:1])
    assert isinstance(result, MeasureResult)
    assert result.samples_sec == first.samples_sec
    assert waited == pytest.approx([0.05, 0.025])


def test_failures_happen_where_they_happened() -> None:
    records = [record(CONFIGS[0], Outcome.BUILD_TIMEOUT), record(CONFIGS[1], Outcome.RUN_CRASH, run_sec=0.1)]
    (built, ran), waited = replay(Recording(records), CONFIGS[:2])
    assert built is Outcome.BUILD_TIMEOUT
    assert isinstance(ran, MeasureResult)
    assert ran.failure is not None
    assert (ran.failure.outcome, ran.samples_sec) == (Outcome.RUN_CRASH, ())
    assert waited == [0.5, 0.5, 0.1]


def test_a_config_without_a_record_has_none_or_a_stand_in() -> None:
    records = [record(CONFIGS[0], run_sec=0.25), record(CONFIGS[1], run_sec=0.75)]
    (missing,), waited = replay(Recording(records), CONFIGS[2:3])
    assert isinstance(missing, MeasureResult)
    assert missing.failure is not None
    assert missing.failure.outcome is Outcome.RUN_ERROR
    assert waited == []
    matches = [Recording(records, stand_ins=True).find(TASK, config) for config in CONFIGS]
    assert matches[:2] == records
    assert {record.config for record in matches if record} == set(CONFIGS[:2])
    assert matches == [Recording(records, stand_ins=True).find(TASK, config) for config in CONFIGS]
    elsewhere = replace(TASK, workload=replace(TASK.workload, key="another"))
    assert Recording(records, stand_ins=True).find(elsewhere, CONFIGS[0]) is None


def test_the_last_record_of_a_config_counts_and_odd_seconds_do_not() -> None:
    later = replace(record(CONFIGS[0], run_sec="soon"), samples_sec=(4e-3,))
    (result,), waited = replay(Recording([record(CONFIGS[0]), later]), CONFIGS[:1])
    assert isinstance(result, MeasureResult)
    assert result.samples_sec == (4e-3,)
    assert waited == [0.5, 4e-3]


def test_what_is_hopeless_is_cut_short_and_what_was_stays_so() -> None:
    recording = Recording([record(CONFIGS[0]), record(CONFIGS[1], truncated=True)])
    (full, brief), _ = replay(recording, CONFIGS[:2])
    assert isinstance(full, MeasureResult)
    assert isinstance(brief, MeasureResult)
    assert (full.truncated, brief.truncated) == (False, True)
    (cut,), _ = replay(recording, CONFIGS[:1], rival_sec=1e-6)
    assert isinstance(cut, MeasureResult)
    assert (cut.truncated, cut.samples_sec) == (True, (1e-3,))
