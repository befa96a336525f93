"""Jobs of precision int8: the model is quantised once for its samples and accuracy, and goes with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm
from sample_files import blobs_in, checked, npz

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.jobs.control import retry_job
from tunefarm_app.jobs.submit import compile_now
from tunefarm_app.models.removal import delete_model, sweep_blobs
from tunefarm_app.operations.backup import back_up, restore
from tunefarm_app.report.assemble import job_report
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.workload.model import Model

VNNI = {"kind": "llvm", "mcpu": "znver4"}


class QuantisingEngine(ReplayEngine):
    """Notes what it quantised, and the networks that it extracted from and compiled."""

    def __init__(self, refusal: InvalidModelError | None = None) -> None:
        super().__init__()
        self.refusal = refusal
        self.limits: list[float] = []
        self.networks: list[tuple[str, bool]] = []

    def quantise(self, model: Model, samples: Any, **named: Any) -> Model:
        self.limits.append(named["max_error"])
        if self.refusal is not None:
            raise self.refusal
        quantised = super().quantise(model, samples, **named)
        with quantised.path.open("a") as file:
            file.write(" " * len(self.limits))
        return quantised

    def extract_tasks(self, model: Model, *args: Any, **named: Any) -> Any:
        assert named.get("precision", "as-model") == "as-model", "a quantised network is compiled as it is"
        self.networks.append(("extract", model.quantisation is not None))
        return super().extract_tasks(model, *args, **named)

    def compile(self, model: Model, *args: Any, **named: Any) -> Any:
        assert args[2].precision == "as-model"
        self.networks.append(("compile", model.quantisation is not None))
        return super().compile(model, *args, **named)


@pytest.fixture
def engine() -> QuantisingEngine:
    return QuantisingEngine()


@pytest.fixture
def busy(farm: Farm, engine: QuantisingEngine) -> Farm:
    busy = farm.with_engine(engine)
    busy.add_device(target=VNNI)
    return busy


def quantised_job(farm: Farm, *, sets: int = 3, **terms: Any) -> Job:
    model = farm.ready_model()
    samples = checked(farm, model, npz(sets))
    return farm.submit(model, trials=8, precision="int8", samples=[samples.id], **terms)


def quantised_blob(farm: Farm, job: Job) -> str:
    """Return the hash of the only blob that is neither the model, nor its samples, nor the artifact."""
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
        samples = repos.samples.get(job.model_id, job.options["samples"][0])
    assert artifact is not None
    (sha256,) = blobs_in(farm) - {artifact.sha256, samples.sha256, farm.model(job.model_id).sha256}
    return sha256


def test_a_job_quantises_tunes_and_compiles(busy: Farm, engine: QuantisingEngine) -> None:
    job = quantised_job(busy, max_error=0.02)
    busy.run()
    assert busy.job(job.id).state is JobState.SUCCEEDED, busy.job(job.id).error
    assert engine.limits == [0.02]
    assert engine.networks == [("extract", False), ("extract", True), ("compile", True)]
    assert "quantised" in busy.events(job.id)
    code = "\n".join(step.code for step in job_report(busy.services, job.id).reproduce.steps)
    assert "--precision int8 --max-error 0.02" in code
    assert "--inputs samples-0.npz" in code


def test_the_same_terms_are_quantised_once(busy: Farm, engine: QuantisingEngine) -> None:
    first = quantised_job(busy)
    busy.run()
    model = busy.model(first.model_id)
    terms = {"trials": 8, "precision": "int8", "samples": first.options["samples"]}
    again = busy.submit(model, **terms)
    busy.run()
    assert engine.limits == [0.05], "the default, once"
    other = busy.submit(model, **terms, max_error=0.5)
    busy.run()
    assert engine.limits == [0.05, 0.5]
    assert {busy.job(job.id).state for job in (first, again, other)} == {JobState.SUCCEEDED}
    with busy.services.uow.read() as repos:
        pipelines = {task.pipeline for task in repos.models.tasks(model.id)}
    assert len({name for name in pipelines if name.startswith("cpu dot16 int8 ")}) == 2


def test_an_artifact_so_far_is_of_the_same_network(busy: Farm, engine: QuantisingEngine) -> None:
    job = quantised_job(busy, max_error=0.03)
    busy.run()
    compile_now(busy.services, job.id)
    busy.run()
    assert engine.limits == [0.03]
    assert engine.networks[-1] == ("compile", True)


def test_without_samples_it_is_refused(busy: Farm) -> None:
    with pytest.raises(InvalidInputError, match="samples, given with the job") as caught:
        busy.submit(busy.ready_model(), precision="int8")
    assert caught.value.code == "samples-needed"


@pytest.mark.parametrize("max_error", [0.0, -0.1, 1.5, float("nan")])
def test_an_accuracy_that_is_no_share_is_refused(busy: Farm, max_error: float) -> None:
    with pytest.raises(InvalidInputError) as caught:
        busy.submit(busy.ready_model(), max_error=max_error)
    assert caught.value.code == "invalid-max-error"


def test_a_cpu_without_an_int8_dot_product_is_refused(farm: Farm) -> None:
    farm.add_device(target={"kind": "llvm", "mcpu": "sandybridge"})
    with pytest.raises(InvalidInputError, match="avx2, avx512_vnni") as caught:
        quantised_job(farm)
    assert caught.value.code == "unsupported-precision"


def test_what_cannot_be_that_accurate_fails_the_job_before_its_search(farm: Farm) -> None:
    refusal = InvalidModelError("off by 0.2, and 0.01 was asked for", code="too-inaccurate", error=0.2)
    farm = farm.with_engine(QuantisingEngine(refusal))
    farm.add_device(target=VNNI)
    job = quantised_job(farm, max_error=0.01)
    farm.run()
    failed = farm.job(job.id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "too-inaccurate"
    assert failed.trials == 0
    farm = farm.with_engine(QuantisingEngine())
    retry_job(farm.services, job.id)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_the_quantised_form_is_kept_and_goes_with_its_model(busy: Farm, tmp_path: Path) -> None:
    job = quantised_job(busy)
    busy.run()
    sweep_blobs(busy.services, temporary_age_sec=0, unreferenced_age_sec=0)
    sha256 = quantised_blob(busy, job)
    back_up(busy.services.settings.database_url.get_secret_value(), busy.services.blobs, tmp_path / "b.tar")
    twin = busy.empty_twin(tmp_path)
    url = twin.services.settings.database_url.get_secret_value()
    restore(tmp_path / "b.tar", database_url=url, store=twin.services.blobs, replace=True)
    assert sha256 in blobs_in(twin)
    twin.services.close()
    delete_model(busy.services, job.model_id)
    assert sha256 not in blobs_in(busy)


def test_a_lost_form_is_made_again(busy: Farm, engine: QuantisingEngine) -> None:
    job = quantised_job(busy)
    busy.run()
    busy.services.blobs.delete(quantised_blob(busy, job))
    samples = job.options["samples"]
    again = busy.submit(busy.model(job.model_id), trials=8, precision="int8", samples=samples)
    busy.run()
    assert busy.job(again.id).state is JobState.SUCCEEDED, busy.job(again.id).error
    assert engine.limits == [0.05, 0.05]


def test_the_recipe_quantises_first(busy: Farm) -> None:
    job = quantised_job(busy, max_error=0.02)
    busy.run()
    steps = job_report(busy.services, job.id).reproduce.steps
    code = [step.code for step in steps if step.language == "python"]
    assert code
    assert all(
        "quantise_model(" in each and "max_error=0.02" in each and "precision=" not in each for each in code
    )
