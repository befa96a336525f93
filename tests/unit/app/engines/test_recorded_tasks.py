"""A farm that replays recorded tasks returns the recorded results after the recorded times."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_convert import check_file
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space

TASK, SPACE = synthetic_task("conv", weight=3), tiny_space()
CONFIGS = [SPACE.config_at(number) for number in range(SPACE.size)]
RECORDS = [
    TuningRecord(
        workload_key=TASK.workload.key,
        target_key=TASK.target.key,
        device_model="m",
        toolchain="t",
        space_key=SPACE.key,
        config=config,
        outcome=outcome,
        samples_sec=(number * 1e-3,) * 3 if outcome is Outcome.OK else (),
        build_sec=number * 0.25,
        measured_at=0.0,
        extra={"run_sec": number * 0.5},
    )
    for number, (config, outcome) in enumerate(
        zip(CONFIGS[:3], (Outcome.OK, Outcome.RUN_CRASH, Outcome.BUILD_ERROR), strict=True), start=1
    )
]


def recorded(**changes: object) -> Scenario:
    task = RecordedTask.of(TASK, SPACE, [*RECORDS, replace(RECORDS[0], space_key="another")])
    return Scenario(recorded=(task,), **changes)  # type: ignore[arg-type]


def test_recorded_tasks_are_tuned_as_they_were(farm) -> None:
    device = farm.add_device()
    job = farm.submit(farm.ready_model(recorded(scale=0.01)), trials=16)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        (task,) = repos.jobs.tasks(job.id)
    assert (task.name, task.weight) == ("conv", 3)
    assert task.best_cost_sec == 1e-3
    trials = farm.trials(job.id)
    assert len(trials) == 16
    # Configs that were never tried have the outcome, the cost and the seconds of one that was.
    seen = {(trial.outcome, trial.cost_sec, round(trial.build_sec, 6)) for trial in trials}
    assert seen <= {("ok", 1e-3, 0.0025), ("run-crash", None, 0.005), ("build-error", None, 0.0075)}
    by_config = {trial.config_key: trial for trial in trials}
    for record in RECORDS:
        if record.config.key in by_config:
            assert by_config[record.config.key].outcome == record.outcome
    assert farm.device(device.id).lease_owner is None


def test_recorded_seconds_pass_until_the_step_is_cancelled(farm, tmp_path: Path) -> None:
    engine = ReplayEngine()
    path = tmp_path / "net.onnx"
    path.write_bytes(recorded(scale=1e4).to_bytes())
    (task,) = engine.import_model(path, {}, {}, cancellation=Cancellation()).tasks
    cancellation = Cancellation()
    threading.Timer(0.3, cancellation.cancel).start()
    with engine.measuring(farm.add_device(), cancellation=cancellation) as option:
        (built,) = option.builder.build([BuildInput(task=task, config=CONFIGS[0])])
        assert cancellation.cancelled
        assert built.build_sec == 2500.0
        assert built.artifact_path is not None
        (result,) = option.runner.run([MeasureInput(task=task, artifact_path=built.artifact_path)])
    assert result.run_sec == 5000.0


def test_seeds_tell_equal_recordings_apart(tmp_path: Path) -> None:
    engine, path = ReplayEngine(), tmp_path / "net.onnx"
    keys = []
    for seed in (0, 0, 1):
        path.write_bytes(recorded(seed=seed).to_bytes())
        (task,) = engine.import_model(path, {}, {}, cancellation=Cancellation()).tasks
        keys.append(task.workload.key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("data", [b"\x08[]", b'\x08{"recorded": [{}]}', b'\x08{"recorded": 3}', b"\x08{"])
def test_what_is_no_scenario_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match="simulation"):
        Scenario.read(path)


def test_a_scenario_passes_as_a_model_and_one_of_an_older_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(Scenario(tasks=3).to_bytes())
    check_file(path)
    assert Scenario.read(path) == Scenario(tasks=3)
    path.write_bytes(b'\x08{"tasks": 3}')
    assert Scenario.read(path) == Scenario(tasks=3)
