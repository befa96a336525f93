"""Jobs that run again: on the same terms, one at a time, and by a schedule only if the compiler has changed."""

from __future__ import annotations

import json

import pytest
from app_farm import Farm
from sample_files import checked, npz

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.again import run_again
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

TERMS = ("model_id", "target", "target_key", "device_key", "tuner", "seed", "priority", "tags", "note")


def finished(farm: Farm, **terms: object) -> Job:
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), **{"trials": 8, **terms})
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return farm.job(job.id)


def made_by(farm: Farm, job_id: str, **versions: str) -> None:
    """Make it as if other versions had made a job's artifact."""
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job_id)
        assert artifact is not None
    manifest = {**artifact.manifest, "versions": {**artifact.manifest["versions"], **versions}}
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE artifacts SET manifest = ? WHERE job_id = ?", (json.dumps(manifest), job_id)
        )


def test_a_job_runs_again_on_its_terms_and_goes_on_from_its_records(farm: Farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    samples = checked(farm, model, npz(3))
    request = JobRequest(
        model_id=model.id,
        budget=JobBudget(job_sec=600.0, trials=8, min_gain_per_min=0.01),
        tuner="ga",
        seed=7,
        round_size=4,
        priority="high",
        precision="float16-weights",
        max_error=0.5,
        other_shapes=False,
        baselines=["openvino"],
        samples=[samples.id],
        tags=["nightly"],
        note="as ever",
    )
    first = submit_job(farm.services, request).job
    farm.run_until_quiet()
    first = farm.job(first.id)
    assert first.budget["wall_sec"] is not None, "what the whole job left is no term"
    again = run_again(farm.services, first.id)
    assert again.created
    assert [getattr(again.job, name) for name in TERMS] == [getattr(first, name) for name in TERMS]
    assert again.job.budget == {**first.budget, "wall_sec": None}
    asked = ("round_size", "precision", "max_error", "other_shapes", "baselines", "samples")
    assert {name: again.job.options[name] for name in asked} == {name: first.options[name] for name in asked}
    assert again.job.options["again"] == first.id
    farm.run_until_quiet()
    assert farm.job(again.job.id).state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        configs = [record.config for record in repos.records.query(limit=100).items if not record.confirmed]
    assert len(configs) == len({str(config) for config in configs}), "what was measured counts as tried"


def test_one_at_a_time(farm: Farm) -> None:
    farm.add_device()
    first = finished(farm)
    second = run_again(farm.services, first.id)
    for job_id in (first.id, first.id):
        other = run_again(farm.services, job_id)
        assert (other.created, other.job.id) == (False, second.job.id)
    with pytest.raises(ConflictError, match="it can run again when it has ended") as early:
        run_again(farm.services, second.job.id)
    assert early.value.code == "not-finished"
    farm.run_until_quiet()
    third = run_again(farm.services, second.job.id)
    assert third.created
    assert third.job.options["again"] == first.id, "all are runs of the first"
    with pytest.raises(NotFoundError):
        run_again(farm.services, "job_none")


@pytest.mark.parametrize("package", ["apache-tvm", "tunefarm"])
def test_a_schedule_starts_a_job_only_after_the_compiler_changed(farm: Farm, package: str) -> None:
    farm.add_device()
    first = finished(farm)
    same = run_again(farm.services, first.id, if_changed=True)
    assert (same.created, same.job.id) == (False, first.id)
    made_by(farm, first.id, numpy="0.1")
    assert not run_again(farm.services, first.id, if_changed=True).created, "it decides nothing of a search"
    made_by(farm, first.id, **{package: "0.1"})
    changed = run_again(farm.services, first.id, if_changed=True)
    assert changed.created
    farm.run_until_quiet()
    newest = run_again(farm.services, first.id, if_changed=True)
    assert (newest.created, newest.job.id) == (False, changed.job.id), "the newest artifact counts"


def test_without_an_artifact_there_is_nothing_to_keep(farm: Farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=job.id)
        repos.jobs.move(job.id, JobState.FAILED, error={"code": "internal", "message": "broken"})
    assert run_again(farm.services, job.id, if_changed=True).created


def test_a_job_without_a_search_runs_again_without_one(farm: Farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    first = submit_job(farm.services, JobRequest(model_id=model.id, search=False)).job
    farm.run_until_quiet()
    again = run_again(farm.services, first.id).job
    assert (again.budget, again.options["search"]) == ({}, False)
