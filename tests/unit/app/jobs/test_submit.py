from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import pytest

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.artifacts import artifact_of
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.submit import JobRequest, SubmittedJob, compile_now, submit_job
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.removal import delete_model
from tunefarm_db.states.job import JobState
from tunefarm_text import job_terms
from tunefarm_tuning import tuner
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TunefarmError
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.workload.precision import Precision


def test_the_terms_name_what_the_engine_knows() -> None:
    """The text is apart from the engine because the client has no engine."""
    assert job_terms.TUNERS == tuner.TUNERS
    assert tuple(precision.value for precision in Precision) == job_terms.PRECISIONS
    assert set(job_terms.API_LIMITS.values()) == {field.name for field in fields(JobBudget)}


def refused(farm, model_id: str, **terms) -> TunefarmError:
    request = JobRequest(**{"model_id": model_id, "budget": Budget(trials=8), **terms})
    with pytest.raises(TunefarmError) as caught:
        submit_job(farm.services, request)
    with farm.services.uow.read() as repos:
        assert repos.jobs.list().items == ()
    assert farm.inbox.messages == []
    return caught.value


def test_an_unknown_model(farm) -> None:
    farm.add_device()
    error = refused(farm, "mdl_nope")
    assert (type(error), error.code) == (NotFoundError, "model-not-found")


def test_a_deleted_model(farm) -> None:
    farm.add_device()
    model = farm.ready_model()
    delete_model(farm.services, model.id)
    assert refused(farm, model.id).code == "model-deleted"


def test_a_model_that_is_being_imported(farm) -> None:
    farm.add_device()
    model = farm.upload(Scenario())
    farm.inbox.messages.clear()
    error = refused(farm, model.id)
    assert (type(error), error.code) == (ConflictError, "model-importing")


def test_a_model_that_failed_says_why(farm) -> None:
    farm.add_device()
    model = farm.upload(b"\x08nonsense")
    farm.run()
    error = refused(farm, model.id)
    assert error.code == "model-failed"
    assert error.fields["error"]["code"] == "invalid-onnx"


@pytest.mark.parametrize(
    ("terms", "code", "words"),
    [
        ({"device_key": "poll"}, "unknown-device-key", "did you mean pool"),
        ({"device_key": "zzzzzz"}, "unknown-device-key", "there is no pool 'zzzzzz'; there is pool"),
        ({"tuner": "xgbost"}, "unknown-tuner", "did you mean xgb"),
        ({"tuner": "magic"}, "unknown-tuner", "there are xgb, ga, random, grid, evolutionary"),
        (
            {"precision": "fp16"},
            "unknown-precision",
            "there are as-model, float16-weights, bfloat16-weights, int8",
        ),
        ({"seed": -1}, "invalid-seed", "between"),
        ({"round_size": 0}, "invalid-round-size", "between"),
        ({"target": "llvm -mcpu=zzz"}, "unknown-target", "zzz"),
        ({"target": "cuda/sm_90"}, "incompatible-target", "cuda"),
        (
            {"budget": Budget(wall_sec=float("inf"))},
            "invalid-budget",
            "the time of the search must be at most 366 days",
        ),
        (
            {"budget": JobBudget(job_sec=1e9)},
            "invalid-budget",
            "the time of the whole job must be at most 366 days",
        ),
        (
            {"budget": Budget(trials=1 << 40)},
            "invalid-budget",
            "the number of trials must be at most 2,147,483,647",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_said(farm, terms, code, words) -> None:
    farm.add_device()
    error = refused(farm, farm.ready_model().id, **terms)
    assert error.code == code
    assert words in error.message


def test_a_gpu_of_another_architecture(farm) -> None:
    farm.add_device(target={"kind": "cuda", "arch": "sm_90"})
    model = farm.ready_model()
    error = refused(farm, model.id, target="cuda/sm_80")
    assert error.code == "incompatible-target"
    assert "sm_80" in error.message
    assert "use cuda/sm_90" in error.message
    request = JobRequest(model_id=model.id, budget=Budget(trials=8), target="cuda/sm_90a")
    assert submit_job(farm.services, request).created


def test_rounds_are_larger_where_all_cores_compile_for_one_gpu(farm) -> None:
    farm.add_device("a", "cpu")
    farm.add_device("b", "gpu", target={"kind": "cuda", "arch": "sm_90"})
    model = farm.ready_model()
    sizes = {key: farm.submit(model, device_key=key).options["round_size"] for key in ("cpu", "gpu")}
    assert sizes["gpu"] == 4 * sizes["cpu"] == 4 * farm.services.settings.round_size
    assert farm.submit(model, device_key="gpu", round_size=5).options["round_size"] == 5


@pytest.mark.parametrize(
    "limit", [{"trials": 0}, {"trials": -3}, {"wall_sec": 0.0}, {"wall_sec": float("nan")}, {}]
)
def test_an_empty_budget_cannot_even_be_said(limit) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Budget(**limit)
    assert caught.value.code == "invalid-budget"


def test_no_devices(farm) -> None:
    error = refused(farm, farm.ready_model().id)
    assert (type(error), error.code) == (ConflictError, "no-devices")


def test_several_pools_need_a_device_key(farm) -> None:
    farm.add_device("a", "one")
    farm.add_device("b", "two")
    model = farm.ready_model()
    error = refused(farm, model.id)
    assert error.code == "device-key-required"
    assert error.fields["known"] == ["one", "two"]
    assert farm.submit(model, device_key="two").device_key == "two"


@pytest.mark.parametrize("target", [None, "host"])
def test_host_is_what_the_devices_are(farm, target) -> None:
    farm.add_device(target={"kind": "llvm", "num-cores": 64})
    job = farm.submit(farm.ready_model(), target=target)
    assert job.target == {"kind": "llvm", "num-cores": 64}
    assert job.target_key == "llvm -num-cores=64"


def test_a_target_of_ones_own(farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), target="llvm -num-cores=1")
    assert job.target_key == "llvm -num-cores=1"


def test_an_idempotency_key_makes_one_job(farm) -> None:
    farm.add_device()
    model = farm.ready_model()
    request = JobRequest(model_id=model.id, budget=Budget(trials=8))
    first = submit_job(farm.services, request, idempotency_key="k1")
    again = submit_job(farm.services, request, idempotency_key="k1")
    assert (first.created, again.created) == (True, False)
    assert again.job.id == first.job.id
    assert len(farm.inbox.messages) == 1
    other = JobRequest(model_id=model.id, budget=Budget(trials=9))
    with pytest.raises(ConflictError) as caught:
        submit_job(farm.services, other, idempotency_key="k1")
    assert caught.value.code == "idempotency-key-reused"
    # It is answered even when the request would not be taken any more.
    farm.run()
    delete_model(farm.services, model.id)
    assert submit_job(farm.services, request, idempotency_key="k1").job.id == first.job.id


def test_the_code_for_other_shapes_is_part_of_the_request(farm) -> None:
    farm.add_device()
    request = JobRequest(model_id=farm.ready_model().id, budget=Budget(trials=8))
    first = submit_job(farm.services, request, idempotency_key="k")
    same = submit_job(farm.services, replace(request, other_shapes=True), idempotency_key="k")
    assert (same.job.id, same.job.options["other_shapes"]) == (first.job.id, True)
    without = replace(request, other_shapes=False)
    with pytest.raises(ConflictError) as caught:
        submit_job(farm.services, without, idempotency_key="k")
    assert caught.value.code == "idempotency-key-reused"
    assert submit_job(farm.services, without).job.options["other_shapes"] is False


def test_other_runtimes_are_part_of_the_request(farm) -> None:
    farm.add_device()
    request = JobRequest(model_id=farm.ready_model().id, budget=Budget(trials=8))
    first = submit_job(farm.services, request, idempotency_key="k")
    same = submit_job(farm.services, replace(request, baselines=["onnxruntime"]), idempotency_key="k")
    assert same.job.id == first.job.id, "ONNX Runtime always is one"
    assert "baselines" not in first.job.options
    asked = replace(request, baselines=["litert", "OpenVINO-default"])
    assert submit_job(farm.services, asked).job.options["baselines"] == ["openvino_default", "litert"]
    with pytest.raises(ConflictError) as caught:
        submit_job(farm.services, asked, idempotency_key="k")
    assert caught.value.code == "idempotency-key-reused"
    with pytest.raises(
        InvalidInputError, match="there is no baseline 'tvm'; the baselines are onnxruntime, openvino"
    ) as refused:
        submit_job(farm.services, replace(request, baselines=["tvm"]))
    assert refused.value.code == "unknown-baseline"


@pytest.mark.parametrize("key", ["", "x" * 201, "naïve", "a\nb"])
def test_idempotency_keys_are_plain(farm, key) -> None:
    farm.add_device()
    model = farm.ready_model()
    with pytest.raises(InvalidInputError) as caught:
        farm.submit(model, key=key)
    assert caught.value.code == "invalid-idempotency-key"


def covered(farm, job_id: str) -> int:
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job_id)
    assert artifact is not None
    return artifact.report["coverage"]["covered"]


def test_what_is_on_record_is_compiled_while_the_search_goes_on(farm, tuning_job) -> None:
    untuned = compile_now(farm.services, tuning_job.id)
    assert untuned.created
    assert not compile_now(farm.services, tuning_job.id).created
    farm.run_until_quiet()
    assert farm.job(untuned.job.id).state is JobState.SUCCEEDED
    assert "compile-now" in farm.events(tuning_job.id)

    searching = farm.submit(farm.model(tuning_job.model_id), trials=64, priority=100, precision="as-model")
    one_by_one = farm.with_settings(step_chain_sec=0.0)
    one_by_one.run(steps=4)
    assert farm.job(searching.id).state is JobState.TUNING
    so_far = compile_now(farm.services, searching.id)
    assert (so_far.created, so_far.job.priority, so_far.job.options["of"]) == (True, 100, searching.id)
    while farm.job(so_far.job.id).state is not JobState.SUCCEEDED:
        assert one_by_one.run(steps=1)
    assert farm.job(searching.id).state is JobState.TUNING
    assert covered(farm, so_far.job.id) == 2
    farm.run_until_quiet()
    assert (farm.job(searching.id).state, farm.job(searching.id).trials) == (JobState.SUCCEEDED, 64)
    assert {farm.job(job_id).state for job_id in (tuning_job.id, so_far.job.id)} == {JobState.SUCCEEDED}


def test_compiles_asked_for_at_once_are_one_job(farm, tuning_job) -> None:
    at_once = threading.Barrier(4)

    def ask(_: int) -> SubmittedJob:
        at_once.wait()
        return compile_now(farm.services, tuning_job.id)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert len({answer.job.id for answer in answers}) == 1
    assert sorted(answer.created for answer in answers) == [False, False, False, True]
    assert farm.events(tuning_job.id).count("compile-now") == 1


def test_the_artifact_so_far_has_the_tags_of_its_job(farm, tuning_job) -> None:
    change_job(farm.services, tuning_job.id, JobChange(tags=["nightly", "ocr"]))
    assert compile_now(farm.services, tuning_job.id).job.tags == ["nightly", "ocr"]


def test_it_comes_before_its_job_on_a_device(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=1)
    so_far = compile_now(farm.services, tuning_job.id).job
    assert so_far.priority == tuning_job.priority + 1
    farm.with_settings(step_chain_sec=0.0).run(steps=3)
    with farm.services.uow.read() as repos:
        ahead = repos.turns.next_of("pool")
    assert [step.job_id for step in ahead] == [so_far.id]


def test_a_cancelled_job_without_an_artifact_says_how_to_get_its_best(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=2)
    cancel_job(farm.services, tuning_job.id)
    with (
        farm.services.uow.read() as repos,
        pytest.raises(ConflictError, match="jobs artifact --now") as caught,
    ):
        artifact_of(repos, repos.jobs.get(tuning_job.id))
    assert caught.value.code == "no-artifact"


def test_a_cancelled_job_hands_back_its_best(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=2)
    trials = farm.job(tuning_job.id).trials
    cancel_job(farm.services, tuning_job.id)
    best = compile_now(farm.services, tuning_job.id).job
    farm.run()
    assert (farm.job(best.id).state, farm.job(best.id).trials, trials > 0) == (JobState.SUCCEEDED, 0, True)
    assert covered(farm, best.id) > 0
    delete_model(farm.services, tuning_job.model_id)
    with pytest.raises(TunefarmError) as caught:
        compile_now(farm.services, tuning_job.id)
    assert caught.value.code == "model-deleted"
    with pytest.raises(NotFoundError):
        compile_now(farm.services, "job_nope")
