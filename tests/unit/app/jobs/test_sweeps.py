"""Sweeps: one request, many jobs, one budget; what cannot be tuned takes nothing with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from app_farm import Farm
from sample_files import checked, npz, send

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.sweeps import (
    RefusedFile,
    SweepRequest,
    cancel_sweep,
    shares,
    submit_sweep,
)
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.removal import delete_model
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.sweeps import SweepReport, sweep_report, sweep_report_page
from tunefarm_db.states.job import JobState
from tunefarm_text.job_terms import MAX_SWEEP_JOBS
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TunefarmError

TIME = JobTerms(budget=JobBudget(job_sec=1200.0))
TRIALS = JobTerms(budget=JobBudget(trials=40), tuner="random")


def models(farm: Farm, count: int) -> list[str]:
    return [farm.ready_model(Scenario(tasks=1, seed=seed)).id for seed in range(count)]


def report(farm: Farm, sweep_id: str) -> SweepReport:
    with farm.services.uow.read() as repos:
        return sweep_report(repos, sweep_id)


def test_every_combination_is_a_job_with_its_share_of_the_time(farm: Farm) -> None:
    farm.add_device("a", "x86")
    farm.add_device("b", "arm")
    request = SweepRequest(
        model_ids=models(farm, 2),
        device_keys=["x86", "arm", "x86"],
        precisions=["as-model", "float16-weights"],
        terms=TIME,
        tags=["Nightly"],
        note="all of them",
    )
    submitted = submit_sweep(farm.services, request)
    cells = report(farm, submitted.sweep.id).cells
    assert [(cell.model_id, cell.device_key, cell.precision) for cell in cells] == [
        (model, pool, precision)
        for model in request.model_ids
        for pool in ("x86", "arm")
        for precision in ("as-model", "float16-weights")
    ]
    jobs = [farm.job(cell.job_id or "") for cell in cells]
    assert {job.budget["job_sec"] for job in jobs} == {300.0}, "four jobs in each pool share its 20 minutes"
    assert {(*job.tags, job.note) for job in jobs} == {("nightly", "all of them")}
    assert {job.options["sweep"] for job in jobs} == {submitted.sweep.id}
    assert submitted.sweep.budget["job_sec"] == 1200.0


def test_trials_are_shared_by_all_and_patience_by_none(farm: Farm) -> None:
    budget = JobBudget(trials=11, patience_trials=7, wall_sec=60.0)
    jobs = [JobTerms(budget=budget, device_key=pool) for pool in ("a", "a", "b")]
    given = [share.to_json() for share in shares(jobs) if share is not None]
    assert [(share["trials"], share["patience_trials"], share["wall_sec"]) for share in given] == [
        (3, 7, 30.0),
        (3, 7, 30.0),
        (3, 7, 60.0),
    ]
    with pytest.raises(
        InvalidInputError, match="2 trials are too few for 3 jobs, which share them: 3 is the least"
    ):
        list(shares([replace(job, budget=JobBudget(trials=2)) for job in jobs]))
    assert list(shares([JobTerms(search=False)])) == [None]


def test_what_cannot_be_tuned_is_a_row_and_takes_no_share(farm: Farm) -> None:
    farm.add_device("a", "x86")
    gpu = {"kind": "cuda", "arch": "sm_90"}
    farm.add_device("b", "gpu", target=gpu)
    (model,) = models(farm, 1)
    failed = farm.upload(b"\x08\x0abroken")
    farm.run()
    assert farm.model(failed.id).state.value == "failed"
    request = SweepRequest(
        model_ids=[model, failed.id],
        device_keys=["x86", "gpu"],
        precisions=["as-model", "float16-weights"],
        terms=TIME,
        refused=[RefusedFile(name="bad\x1b.onnx", code="not-protobuf", message="neither ONNX nor TFLite")],
    )
    submitted = submit_sweep(farm.services, request)
    sweep = report(farm, submitted.sweep.id)
    assert sweep.counts == {"queued": 3, "refused": 6}
    reasons = {(cell.device_key, cell.precision): cell.error.code for cell in sweep.cells[:4] if cell.error}
    assert reasons == {("gpu", "float16-weights"): "unsupported-precision"}
    assert [cell.error.code for cell in sweep.cells[4:8] if cell.error] == ["model-failed"] * 4
    last = sweep.cells[8]
    assert (last.model_name, last.state, last.job_id) == ("bad\\x1b.onnx", "refused", None)
    budgets = {(cell.device_key, cell.budget.get("job_sec")) for cell in sweep.cells if cell.job_id}
    assert budgets == {("x86", 600.0), ("gpu", 1200.0)}


def test_a_model_with_too_many_files_of_samples_is_a_row(farm: Farm) -> None:
    farm.add_device()
    good, other = models(farm, 2)
    request = SweepRequest(
        model_ids=[good, other], terms=TIME, samples={other: [f"smp_{number}" for number in range(9)]}
    )
    sweep = report(farm, submit_sweep(farm.services, request).sweep.id)
    assert sweep.counts == {"queued": 1, "refused": 1}
    assert [cell.error.code for cell in sweep.cells if cell.error] == ["too-many-sample-files"]


def test_a_failed_job_does_not_take_the_others_with_it(farm: Farm) -> None:
    farm.add_device()
    good, bad = models(farm, 2)
    sweep_id = submit_sweep(farm.services, SweepRequest(model_ids=[good, bad], terms=TRIALS)).sweep.id
    first, second = (cell.job_id or "" for cell in report(farm, sweep_id).cells)
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=second)
        repos.jobs.move(second, JobState.FAILED, error={"code": "internal", "message": "it <broke>"})
    assert report(farm, sweep_id).state == "running"
    farm.run_until_quiet()
    assert farm.job(first).state is JobState.SUCCEEDED
    assert farm.job(first).trials == 20
    done = report(farm, sweep_id)
    assert (done.state, done.counts) == ("ended", {"failed": 1, "succeeded": 1})
    assert done.finished_at == farm.job(first).finished_at or done.finished_at == farm.job(second).finished_at
    row = done.cells[0]
    assert row.is_measured == (farm.job(first).network_latency_sec is not None)
    assert row.latency_sec is not None
    assert done.cells[1].error is not None
    caveats = " ".join(job_report(farm.services, first).reproduce.caveats)
    assert "sweep" not in caveats, "the command has no such option"
    page = sweep_report_page(done)
    assert "it &lt;broke&gt;" in page
    assert "<script" not in page
    assert "share the trials equally" in page


def test_the_fastest_of_a_model_on_a_pool_is_marked(farm: Farm) -> None:
    farm.add_device()
    (model,) = models(farm, 1)
    request = SweepRequest(model_ids=[model], precisions=["as-model", "float16-weights"], terms=TRIALS)
    sweep_id = submit_sweep(farm.services, request).sweep.id
    cells = report(farm, sweep_id).cells
    assert not any(cell.is_fastest for cell in cells)
    with farm.services.uow.write() as repos:
        for cell, sec in zip(cells, (2e-3, 1e-3), strict=True):
            speedups = {
                "untuned": {"value": 3.0, "low": 2.9, "high": 3.1},
                "onnxruntime": {"value": 1.5, "low": 1.4, "high": 1.6},
            }
            repos.jobs.set_numbers(
                cell.job_id or "",
                network_latency_sec=sec,
                speedups=speedups,
                over_untuned=3.0,
                over_runtime=1.5,
            )
    cells = report(farm, sweep_id).cells
    assert [cell.is_fastest for cell in cells] == [False, True]
    with farm.services.uow.write() as repos:
        numbers = {"speedups": speedups, "over_untuned": 3.0, "over_runtime": 1.5}
        repos.jobs.set_numbers(cells[0].job_id or "", network_latency_sec=1.1e-3, **numbers)
    assert not any(cell.is_fastest for cell in report(farm, sweep_id).cells), (
        "timings of two times differ as much"
    )
    rough = {"value": 3.0, "low": 1.0, "high": 9.0}
    for speedups in (
        {"untuned": rough},
        {"untuned": {"value": 1.0, "low": 1.0, "high": 1.0}, "onnxruntime": rough},  # it fell back to untuned
    ):
        with farm.services.uow.write() as repos:
            repos.jobs.set_numbers(
                cells[0].job_id or "",
                network_latency_sec=2e-3,
                speedups=speedups,
                over_untuned=speedups["untuned"]["value"],
                over_runtime=None,
            )
        assert not any(cell.is_fastest for cell in report(farm, sweep_id).cells), "other work disturbed it"
    with farm.services.uow.write() as repos:
        on_the_way = {"speedups": {}, "over_untuned": None, "over_runtime": None}
        repos.jobs.set_numbers(cells[0].job_id or "", network_latency_sec=1e-6, **on_the_way)
    assert not any(cell.is_fastest for cell in report(farm, sweep_id).cells), "it is still being tuned"
    assert [(cell.runtime, cell.over_runtime and cell.over_runtime.value) for cell in cells] == [
        ("onnxruntime", 1.5)
    ] * 2


def test_cancelling_cancels_all_that_run(farm: Farm) -> None:
    farm.add_device()
    sweep_id = submit_sweep(farm.services, SweepRequest(model_ids=models(farm, 3), terms=TRIALS)).sweep.id
    job_ids = [cell.job_id or "" for cell in report(farm, sweep_id).cells]
    farm.run(steps=2)
    cancel_sweep(farm.services, sweep_id)
    cancel_sweep(farm.services, sweep_id)
    assert {farm.job(job_id).state for job_id in job_ids} == {JobState.CANCELLED}
    assert report(farm, sweep_id).state == "cancelled"
    farm.run_until_quiet()
    assert {farm.job(job_id).state for job_id in job_ids} == {JobState.CANCELLED}
    with pytest.raises(NotFoundError) as missing:
        cancel_sweep(farm.services, "swp_x")
    assert missing.value.code == "sweep-not-found"


def test_cancelling_what_has_ended_changes_nothing(farm: Farm) -> None:
    farm.add_device()
    sweep_id = submit_sweep(farm.services, SweepRequest(model_ids=models(farm, 1), terms=TRIALS)).sweep.id
    farm.run_until_quiet()
    assert report(farm, sweep_id).state == "ended"
    assert cancel_sweep(farm.services, sweep_id).cancelled_at is None
    assert report(farm, sweep_id).state == "ended"


def test_models_of_one_name_are_told_apart_by_version(farm: Farm) -> None:
    farm.add_device()
    request = SweepRequest(model_ids=models(farm, 2), terms=TRIALS)
    cells = report(farm, submit_sweep(farm.services, request).sweep.id).cells
    assert [cell.model_name for cell in cells] == ["net.onnx@1", "net.onnx@2"]


def test_samples_are_of_one_model_each(farm: Farm) -> None:
    vnni = {"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}
    farm.add_device(target=vnni)
    ids = models(farm, 3)
    rows = [farm.model(model_id) for model_id in ids]
    good, kept = (checked(farm, row, npz(count)).id for row, count in zip(rows, (3, 4), strict=False))
    request = SweepRequest(
        model_ids=ids,
        precisions=["as-model", "int8"],
        terms=TRIALS,
        samples={ids[0]: [good, good], ids[1]: [kept]},
    )
    cells = report(farm, submit_sweep(farm.services, request, idempotency_key="s").sweep.id).cells
    with farm.services.uow.read() as repos:
        options = [repos.jobs.get(cell.job_id).options if cell.job_id else {} for cell in cells]
    assert [used.get("samples") for used in options] == [[good], [good], [kept], [kept], None, None]
    assert [cell.error.code for cell in cells if cell.error] == ["samples-needed"], "the third model has none"
    with pytest.raises(ConflictError, match="was used for a different request"):
        submit_sweep(farm.services, replace(request, samples={ids[0]: [good]}), idempotency_key="s")


def test_samples_that_cannot_be_used(farm: Farm) -> None:
    farm.add_device()
    ids = models(farm, 2)
    rows = [farm.model(model_id) for model_id in ids]
    other = checked(farm, rows[1], npz(3)).id
    waiting = send(farm, rows[0], npz(4)).id

    def refusal(samples: dict[str, list[str]]) -> str:
        with pytest.raises(TunefarmError) as refused:
            submit_sweep(farm.services, SweepRequest(model_ids=ids[:1], terms=TRIALS, samples=samples))
        return refused.value.code

    assert refusal({ids[0]: [other]}) == "samples-not-found"
    assert refusal({ids[1]: [other]}) == "invalid-request"
    assert refusal({ids[0]: [waiting]}) == "samples-checking"
    with farm.services.uow.write() as repos:
        repos.samples.set_failed(waiting, {"code": "wrong-samples", "message": "they do not fit"})
    assert refusal({ids[0]: [waiting]}) == "empty-sweep"
    both = SweepRequest(model_ids=ids, terms=TRIALS, samples={ids[0]: [waiting], ids[1]: [other]})
    cells = report(farm, submit_sweep(farm.services, both).sweep.id).cells
    assert [cell.error and cell.error.code for cell in cells] == ["samples-refused", None]


def test_deleting_a_model_says_which_sweep_uses_it(farm: Farm) -> None:
    farm.add_device()
    (model,) = models(farm, 1)
    sweep_id = submit_sweep(farm.services, SweepRequest(model_ids=[model], terms=TRIALS)).sweep.id
    with pytest.raises(ConflictError, match=sweep_id) as refused:
        delete_model(farm.services, model)
    assert refused.value.fields["sweep_ids"] == [sweep_id]
    farm.run_until_quiet()
    delete_model(farm.services, model)
    assert report(farm, sweep_id).cells[0].model_name == "net.onnx"
    with pytest.raises(InvalidInputError, match="no job of the sweep can start") as empty:
        submit_sweep(farm.services, SweepRequest(model_ids=[model], terms=TRIALS))
    assert empty.value.code == "empty-sweep"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"device_keys": ["nowhere"]}, "unknown-device-key"),
        ({"precisions": ["int3"]}, "unknown-precision"),
        ({"terms": JobTerms()}, "invalid-budget"),
        ({"terms": JobTerms(budget=JobBudget(trials=8), tuner="none")}, "unknown-tuner"),
        ({"terms": JobTerms(budget=JobBudget(job_sec=float("inf")))}, "invalid-budget"),
        ({"tags": ["no tag!"]}, "invalid-tag"),
        ({"model_ids": []}, "empty-sweep"),
        (
            {"refused": [RefusedFile(name=str(n), code="c", message="m") for n in range(MAX_SWEEP_JOBS)]},
            "too-many-jobs",
        ),
    ],
)
def test_a_mistake_in_the_request_starts_nothing(farm: Farm, changes: dict[str, Any], code: str) -> None:
    farm.add_device()
    request = replace(SweepRequest(model_ids=models(farm, 1), terms=TRIALS), **changes)
    with pytest.raises(InvalidInputError) as refused:
        submit_sweep(farm.services, request)
    assert refused.value.code == code
    with farm.services.uow.read() as repos:
        assert repos.sweeps.list().items == ()
        assert repos.jobs.list().items == ()


def test_equal_keys_make_one_sweep(farm: Farm) -> None:
    farm.add_device()
    request = SweepRequest(model_ids=models(farm, 1), terms=TRIALS)
    first = submit_sweep(farm.services, request, idempotency_key="k")
    again = submit_sweep(farm.services, request, idempotency_key="k")
    assert (first.created, again.created, again.sweep) == (True, False, first.sweep)
    with pytest.raises(ConflictError) as reused:
        submit_sweep(farm.services, replace(request, precisions=["float16-weights"]), idempotency_key="k")
    assert reused.value.code == "idempotency-key-reused"
