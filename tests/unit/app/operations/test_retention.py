"""Retention deletes what its settings allow, and nothing that is needed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.models.removal import sweep_blobs
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.operations.retention import DAY_SEC, apply_retention
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Model, ModelState
from tunefarm_tuning.core.errors import NotFoundError

OLD_DAYS = 40


def keeping(farm: Any, **days: float) -> Any:
    return farm.with_settings(**days)


def make_old(farm: Any, days: float = OLD_DAYS) -> None:
    """Move all that is there, files as well, into the past."""
    with farm.services.uow.write() as repos:
        for table, columns in {
            "models": ("created_at", "updated_at"),
            "jobs": ("created_at", "finished_at"),
            "artifacts": ("created_at",),
            "records": ("created_at",),
        }.items():
            for column in columns:
                repos._connection.execute(
                    text(f"UPDATE {table} SET {column} = {column} - :sec"), {"sec": days * DAY_SEC}
                )
    then = time.time() - days * DAY_SEC
    for path in (farm.services.settings.store_dir / "sha256").glob("??/??/*"):
        os.utime(path, (then, then))


def finished(farm: Any, model: Model, **terms: Any) -> Any:
    job = farm.submit(model, trials=8, **terms)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return job


def artifact_file(farm: Any, job: Any) -> Path:
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
    path: Path = farm.services.blobs.path_of(artifact.sha256)
    return path


@pytest.fixture
def model(farm: Any) -> Model:
    farm.add_device()
    model: Model = farm.ready_model(Scenario(tasks=1))
    return model


def test_everything_is_kept_unless_told(farm: Any, model: Model) -> None:
    job = finished(farm, model)
    make_old(farm, 10_000)
    assert apply_retention(farm.services) == 0
    sweep_blobs(farm.services)
    assert artifact_file(farm, job).is_file()
    assert farm.model(model.id).state is ModelState.READY


def test_models_that_were_uploaded_again_hide_no_others(farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefarm_app.operations.retention._BATCH", 2)
    models = [farm.ready_model(Scenario(tasks=1, seed=seed)) for seed in range(6)]
    make_old(farm)
    for model in models[:3]:
        farm.services.blobs.path_of(model.sha256).touch()
    keeps = keeping(farm, keep_models_days=OLD_DAYS - 1).services
    assert [apply_retention(keeps) for _ in range(3)] == [2, 1, 0]
    states = [farm.model(model.id).state for model in models]
    assert states == [ModelState.READY] * 3 + [ModelState.DELETED] * 3


def test_an_unused_model_goes_and_what_was_learned_stays(farm: Any, model: Model) -> None:
    job = finished(farm, model)
    trials = farm.trials(job.id)
    make_old(farm)
    assert apply_retention(keeping(farm, keep_models_days=OLD_DAYS + 1).services) == 0
    assert apply_retention(keeping(farm, keep_models_days=OLD_DAYS - 1).services) == 1
    assert farm.model(model.id).state is ModelState.DELETED
    sweep_blobs(farm.services)
    assert not farm.services.blobs.path_of(model.sha256).exists()
    assert farm.trials(job.id) == trials
    assert artifact_file(farm, job).is_file()
    with farm.services.uow.read() as repos:
        assert repos.records.for_job(job.id)
    again = farm.ready_model(Scenario(tasks=1))
    assert again.id != model.id


def test_a_model_with_a_job_at_work_stays(farm: Any, model: Model) -> None:
    """Nothing of an unfinished job is deleted, however old the model is."""
    job = farm.submit(model, trials=16)
    assert farm.run(steps=2) == 2
    assert not farm.job(job.id).state.is_finished
    make_old(farm)
    limited = keeping(farm, keep_models_days=1, keep_artifacts_days=1)
    assert apply_retention(limited.services) == 0
    sweep_blobs(limited.services)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_a_model_that_was_used_or_uploaded_lately_stays(farm: Any, model: Model) -> None:
    make_old(farm)
    limited = keeping(farm, keep_models_days=1)
    farm.upload(Scenario(tasks=1))  # the same bytes: the model is found, its file is new
    assert apply_retention(limited.services) == 0
    make_old(farm)
    finished(farm, model)
    make_old(farm, 0.5)
    assert apply_retention(limited.services) == 0
    make_old(farm, 1.5)
    assert apply_retention(limited.services) == 1


def test_failed_imports_go_too(farm: Any) -> None:
    model = farm.upload(b"\x08\x07 nothing that could be read")
    farm.run_until_quiet()
    assert farm.model(model.id).state is ModelState.FAILED
    make_old(farm)
    assert apply_retention(keeping(farm, keep_models_days=1).services) == 1
    assert farm.model(model.id).state is ModelState.DELETED


def test_an_artifacts_file_goes_and_its_report_stays(farm: Any, model: Model) -> None:
    old = finished(farm, model)
    make_old(farm)
    young = finished(farm, model, seed=9)
    limited = keeping(farm, keep_artifacts_days=OLD_DAYS - 1)
    same = artifact_file(farm, old) == artifact_file(farm, young)
    assert apply_retention(limited.services) == (0 if same else 1)
    assert artifact_file(farm, young).is_file()
    make_old(farm)
    assert apply_retention(limited.services) == 1
    assert not artifact_file(farm, young).exists()
    assert apply_retention(limited.services) == 0, "once is enough"
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(young.id)
        assert artifact is not None
        assert artifact.report["coverage"]
    with pytest.raises(NotFoundError):
        farm.services.blobs.path(artifact.sha256)
    assert farm.model(model.id).state is ModelState.READY


def test_an_artifact_that_was_made_again_stays(farm: Any, model: Model) -> None:
    """Its row is old, but a compile step has just stored the same bytes, and is about to register them."""
    job = finished(farm, model)
    make_old(farm)
    farm.services.blobs.put([artifact_file(farm, job).read_bytes()])
    assert apply_retention(keeping(farm, keep_artifacts_days=1).services) == 0
    assert artifact_file(farm, job).is_file()


def test_why_candidates_failed_is_forgotten(farm: Any) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1, failing=0.5))
    job = finished(farm, model)
    before = farm.trials(job.id)
    failed = [trial for trial in before if trial.outcome != "ok"]
    assert all(trial.message for trial in failed)
    assert 0 < len(failed) < len(before)
    assert apply_retention(keeping(farm, keep_failures_days=1).services) == 0
    make_old(farm)
    at_work = farm.submit(model, trials=64, seed=5)
    farm.run(steps=2)
    young = [trial.message for trial in farm.trials(at_work.id)]
    limited = keeping(farm, keep_failures_days=1)
    assert apply_retention(limited.services) == 2 * len(failed)
    assert apply_retention(limited.services) == 0
    assert farm.trials(job.id) == [replace(trial, message="") for trial in before]
    assert [trial.message for trial in farm.trials(at_work.id)] == young
    with farm.services.uow.read() as repos:
        records = repos.records.for_job(job.id)
    assert {record.outcome for record in records if not record.message} >= {trial.outcome for trial in failed}


def test_the_reconciler_sees_to_it(farm: Any, model: Model) -> None:
    make_old(farm)
    Reconciler(keeping(farm, keep_models_days=1).services).tick()
    assert farm.model(model.id).state is ModelState.DELETED
