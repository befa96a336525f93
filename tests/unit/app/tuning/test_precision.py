"""A job that stores weights in fewer bytes: the engine's request, separate records, the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from app_farm import Farm
from reported_farm import ReportingEngine

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.page import report_page
from tunefarm_app.storage.pipelines import pipeline_of
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.task import TuningTask

ERRORS = {"max_abs_error": 0.002, "max_rel_error": 0.0021, "mean_rel_error": 0.0004}
PRECISION = {
    "name": "float16-weights",
    "weights": {"stored": 24, "kept": 1, "bytes_before": 12_000_000, "bytes_after": 6_000_000},
    "method": "both against ONNX Runtime",
    "accuracy": {
        "stored": ERRORS,
        "as_model": {**ERRORS, "max_rel_error": 4e-6, "mean_rel_error": 6e-7},
        "on_samples": None,
    },
    "quantisation": None,
}


class AskedEngine(ReportingEngine):
    """Notes the precisions that it is asked for; kernels of other weights are other kernels."""

    def __init__(self) -> None:
        super().__init__(precision=PRECISION)
        self.extracted: list[str] = []
        self.compiled: list[str] = []

    def extract_tasks(self, *args: Any, **named: Any) -> tuple[TuningTask, ...]:
        precision = named.get("precision", "as-model")
        self.extracted.append(str(precision))
        tasks = super().extract_tasks(*args, **named)
        return tuple(
            replace(
                task, workload=replace(task.workload, key=f"{task.workload.key[:20]}{len(precision):012d}")
            )
            for task in tasks
        )

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        self.compiled.append(str(args[3].precision))
        return super().compile(*args, **named)


def test_a_job_is_tuned_and_compiled_with_it(farm: Farm) -> None:
    engine = AskedEngine()
    farm = farm.with_engine(engine)
    farm.add_device()
    model = farm.upload(Scenario(tasks=2))
    farm.run()
    assert engine.extracted == ["as-model"]
    jobs = []
    for precision in ("float16-weights", None, "float16-weights"):
        jobs.append(farm.submit(farm.model(model.id), trials=8, precision=precision).id)
        farm.run()
        assert farm.job(jobs[-1]).state is JobState.SUCCEEDED, farm.job(jobs[-1]).error
    assert engine.extracted == ["as-model", "float16-weights"], "each once"
    assert engine.compiled == ["float16-weights", "as-model", "float16-weights"]
    options = [farm.job(job).options["precision"] for job in jobs]
    assert options == ["float16-weights", "as-model", "float16-weights"]
    with farm.services.uow.read() as repos:
        keys = [{task.workload_key for task in repos.jobs.tasks(job)} for job in jobs]
        pipelines = {task.pipeline for task in repos.models.tasks(model.id)}
    assert keys[0] == keys[2]
    assert not keys[0] & keys[1]
    assert pipelines == {"cpu", "cpu float16-weights"}


def test_the_report_says_what_it_costs(farm: Farm) -> None:
    farm = farm.with_engine(AskedEngine())
    farm.add_device()
    model = farm.upload(Scenario(tasks=2))
    farm.run()
    job = farm.submit(farm.model(model.id), trials=8, precision="float16-weights")
    farm.run()
    report = job_report(farm.services, job.id)
    assert report.precision is not None
    assert report.model_dump(mode="json")["precision"] == PRECISION
    (sentence,) = [sentence for sentence in report.summary if "float16-weights" in sentence]
    assert "24 large weights of 25 are stored as float16-weights" in sentence
    assert "without it" in sentence
    page = report_page(report)
    assert "Loss of accuracy by float16-weights" in page
    code = "\n".join(step.code for step in report.reproduce.steps)
    assert "--precision float16-weights" in code
    assert "precision='float16-weights')" in code


@pytest.mark.parametrize("precision", ["float16-weights", "as-model", None])
def test_the_recipe_leaves_it_to_no_server(farm: Farm, precision: str | None) -> None:
    farm = farm.with_engine(AskedEngine())
    farm.add_device()
    model = farm.ready_model()
    job = farm.submit(model, trials=8, round_size=4, precision=precision)
    farm.run()
    reproduce = job_report(farm.services, job.id).reproduce
    (left,) = [sentence for sentence in reproduce.caveats if "uses the server's defaults" in sentence]
    assert left.endswith("this job had round_size = 4.")
    is_named = "precision" in "\n".join(step.code for step in reproduce.steps)
    assert is_named is (precision == "float16-weights")


def test_it_is_part_of_the_request(farm: Farm) -> None:
    farm.add_device()
    model = farm.ready_model()
    request = JobRequest(model_id=model.id, budget=Budget(trials=8))
    first = submit_job(farm.services, request, idempotency_key="k")
    same = submit_job(farm.services, replace(request, precision="as-model"), idempotency_key="k")
    assert same.job.id == first.job.id
    with pytest.raises(ConflictError) as caught:
        submit_job(farm.services, replace(request, precision="int8-weights"), idempotency_key="k")
    assert caught.value.code == "idempotency-key-reused"


def test_bfloat16_is_refused_for_a_cpu_without_it(farm: Farm) -> None:
    farm.add_device(target={"kind": "llvm", "mcpu": "znver3"})
    model = farm.ready_model()
    with pytest.raises(InvalidInputError, match="avx512_bf16") as caught:
        farm.submit(model, precision="bfloat16")
    assert caught.value.code == "unsupported-precision"


def test_bfloat16_is_a_pipeline_of_its_own() -> None:
    zen4 = Target.from_json({"kind": "llvm", "mcpu": "znver4"})
    assert pipeline_of(zen4, Precision.BFLOAT16) == "cpu dot16 bfloat16"
    assert pipeline_of(zen4) == "cpu dot16"
    v2 = {"kind": "llvm", "mcpu": "neoverse-v2", "mtriple": "aarch64-linux-gnu"}
    assert pipeline_of(Target.from_json(v2), Precision.BFLOAT16) == "cpu mmla arm bfloat16"
    # Weights are packed for another instruction than on an x86 without VNNI.
    bare = {**v2, "mattr": ["-dotprod", "-i8mm"]}
    assert pipeline_of(Target.from_json(bare), Precision.BFLOAT16) == "cpu arm bfloat16"


def test_it_is_refused_for_a_gpu(farm: Farm) -> None:
    farm.add_device(target={"kind": "cuda", "arch": "sm_90"})
    model = farm.ready_model()
    with pytest.raises(InvalidInputError, match="is for CPUs") as caught:
        farm.submit(model, precision="float16-weights")
    assert caught.value.code == "unsupported-precision"
