"""Jobs over HTTP: created, listed, cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_app.jobs.transitions import fail_subject
from tunefarm_app.report.numbers import set_report
from tunefarm_app.runtime.composition import Services
from tunefarm_db.repositories.jobs.job_tasks import NewJobTask
from tunefarm_db.values import Model, NewTrial, StepKind, StepState, Workload
from tunefarm_tuning.core.errors import TransientError


@pytest.fixture
def body(ready_model: Model, device: dict[str, Any]) -> dict[str, Any]:
    return {"model_id": ready_model.id, "budget": {"trials": 64}}


def test_a_job_is_queued(client: TestClient, services: Services, body: dict[str, Any]) -> None:
    answer = client.post("/v1/jobs", json={**body, "seed": 7, "options": {"round_size": 4}})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["tuner"], job["seed"], job["device_key"]) == ("queued", "xgb", 7, "lab-cpu")
    assert job["target"] == {"kind": "llvm", "mcpu": "znver5", "num-cores": 2}
    others = ("wall_sec", "job_sec", "patience_trials", "min_gain_per_min")
    assert job["budget"] == {"trials": 64, **dict.fromkeys(others)}
    assert job["options"]["round_size"] == 4
    assert job["progress"] == {
        "phase": "queued",
        **dict.fromkeys(("tasks_total", "tasks_with_record", "trials", "failures"), 0),
        **dict.fromkeys(("alternatives_total", "alternatives_with_record"), 0),
        "best_latency_sec": None,
        "tuned_sec": 0.0,
        "budget": job["budget"],
    }
    assert client.get(f"/v1/jobs/{job['id']}").json() == job
    with services.uow.read() as repos:
        assert repos.steps.find(StepKind.EXTRACT, job["id"]) is not None
    (event,) = client.get(f"/v1/jobs/{job['id']}/events").json()["items"]
    assert (event["seq"], event["kind"]) == (1, "queued")


WRONG = [
    ({"budget": {}}, 422, "invalid-budget"),
    ({"budget": {"trials": 0}}, 422, "invalid-budget"),
    ({"budget": {"trials": -1}}, 422, "invalid-budget"),
    ({"budget": {"wall_sec": 0}}, 422, "invalid-budget"),
    ({"budget": {"patience_trials": 0}}, 422, "invalid-budget"),
    ({"budget": {"job_sec": 0}}, 422, "invalid-budget"),
    ({"budget": {"job_sec": 1e12}}, 422, "invalid-budget"),
    ({"budget": {"job_sec": "60"}}, 422, "invalid-request"),
    ({"budget": {"min_gain_per_min": 0}}, 422, "invalid-budget"),
    ({"budget": {"min_gain_per_min": 1.5}}, 422, "invalid-budget"),
    # Beyond what anybody means, and beyond what the search can count with.
    ({"budget": {"wall_sec": 1e308}}, 422, "invalid-budget"),
    ({"budget": {"trials": 1 << 31}}, 422, "invalid-budget"),
    ({"budget": {"patience_trials": 10**23}}, 422, "invalid-budget"),
    ({"budget": {"wall_sec": "60"}}, 422, "invalid-request"),
    ({"budget": {"wall_sec": True}}, 422, "invalid-request"),
    ({"budget": {"trials": 1.5}}, 422, "invalid-request"),
    ({"budget": {"trials": True}}, 422, "invalid-request"),
    ({"budget": None}, 422, "invalid-budget"),
    ({"options": {"search": False}}, 422, "invalid-budget"),
    ({"budget": {}, "options": {"search": False}}, 422, "invalid-budget"),
    ({"budget": None, "options": {"search": 0}}, 422, "invalid-request"),
    ({"model_id": "mdl_nothing"}, 404, "model-not-found"),
    ({"model_id": None}, 422, "invalid-request"),
    ({"device_key": "lab-gpu"}, 422, "unknown-device-key"),
    ({"target": "llvm-on-the-moon"}, 422, "unknown-target"),
    ({"target": {"kind": "cuda", "arch": "sm_90"}}, 422, "incompatible-target"),
    ({"tuner": "xgbb"}, 422, "unknown-tuner"),
    ({"seed": -1}, 422, "invalid-seed"),
    ({"seed": 1 << 64}, 422, "invalid-seed"),
    ({"options": {"round_size": 0}}, 422, "invalid-round-size"),
    ({"options": {"precision": "fp16"}}, 422, "unknown-precision"),
    ({"options": {"precision": 16}}, 422, "invalid-request"),
    ({"options": {"other_shapes": "no"}}, 422, "invalid-request"),
    ({"options": {"other_shapes": 0}}, 422, "invalid-request"),
    ({"options": {"other_shapes": None}}, 422, "invalid-request"),
    ({"options": {"speed": "fast"}}, 422, "invalid-request"),
    ({"bugdet": {"trials": 1}}, 422, "invalid-request"),
    ({"tags": ["two words"]}, 422, "invalid-tag"),
    ({"tags": [f"t{number}" for number in range(21)]}, 422, "too-many-tags"),
    ({"note": "n" * 4001}, 422, "note-too-long"),
]


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(("changes", "status", "code"), WRONG)
def test_errors_are_reported_before_anything_is_queued(
    client: TestClient,
    body: dict[str, Any],
    problem: Any,
    changes: dict[str, Any],
    status: int,
    code: str,
) -> None:
    document = problem(client.post("/v1/jobs", json={**body, **changes}), status, code)
    if code == "unknown-device-key":
        assert document["known"] == ["lab-cpu"]
    assert client.get("/v1/jobs").json()["items"] == []


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(("changes", "status", "code"), [case for case in WRONG if "model_id" not in case[0]])
def test_it_is_said_before_there_is_a_model(
    client: TestClient, device: dict[str, Any], problem: Any, changes: dict[str, Any], status: int, code: str
) -> None:
    problem(client.post("/v1/jobs/check", json={"budget": {"trials": 64}, **changes}), status, code)


@pytest.mark.parametrize(("options", "wanted"), [({}, True), ({"other_shapes": False}, False)])
def test_the_code_for_other_shapes_can_be_left_out(
    client: TestClient, body: dict[str, Any], options: dict[str, Any], wanted: bool
) -> None:
    assert (
        client.post("/v1/jobs/check", json={"budget": {"trials": 1}, "options": options}).status_code == 200
    )
    job = client.post("/v1/jobs", json={**body, "options": options}).json()
    assert job["options"]["other_shapes"] is wanted
    assert client.get(f"/v1/jobs/{job['id']}").json()["options"] == job["options"]


def test_what_a_request_comes_to(client: TestClient, device: dict[str, Any], problem: Any) -> None:
    answer = client.post("/v1/jobs/check", json={"budget": {"trials": 64}})
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "device_key": "lab-cpu",
            "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 2},
            "target_key": "llvm -mcpu=znver5 -num-cores=2",
        },
    )
    assert client.get("/v1/jobs").json()["items"] == []
    job_request = {"model_id": "mdl_1", "budget": {"trials": 64}}
    problem(client.post("/v1/jobs/check", json=job_request), 422, "invalid-request")


def test_a_farm_without_devices_says_so_at_once(client: TestClient, problem: Any) -> None:
    problem(client.post("/v1/jobs/check", json={"budget": {"trials": 64}}), 409, "no-devices")


def test_models_that_cannot_be_tuned(
    client: TestClient, services: Services, body: dict[str, Any], ready_model: Model, problem: Any
) -> None:
    with services.uow.write() as repos:
        importing = repos.models.add(name="a", sha256="01" * 32, size_bytes=1)
        failed = repos.models.add(name="b", sha256="02" * 32, size_bytes=1)
        error = {
            "kind": "InvalidModelError",
            "code": "truncated-model",
            "message": "it ends early",
            "fields": {},
        }
        repos.models.set_failed(failed.id, error)
    problem(client.post("/v1/jobs", json={**body, "model_id": importing.id}), 409, "model-importing")
    document = problem(client.post("/v1/jobs", json={**body, "model_id": failed.id}), 422, "model-failed")
    assert "it ends early" in document["detail"]
    assert client.delete(f"/v1/models/{ready_model.id}").status_code == 204
    problem(client.post("/v1/jobs", json=body), 410, "model-deleted")


def test_no_device_was_ever_registered(client: TestClient, ready_model: Model, problem: Any) -> None:
    body = {"model_id": ready_model.id, "budget": {"trials": 1}}
    problem(client.post("/v1/jobs", json=body), 409, "no-devices")


def test_idempotency_keys(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/jobs", json=body, headers=headers)
    again = client.post("/v1/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = client.post("/v1/jobs", json={**body, "seed": 1}, headers=headers)
    assert problem(other, 409, "idempotency-key-reused")["job_id"] == first.json()["id"]
    problem(
        client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "x" * 201}),
        422,
        "invalid-idempotency-key",
    )
    assert client.post("/v1/jobs", json=body).status_code == 201
    assert len(client.get("/v1/jobs").json()["items"]) == 2


def test_priorities(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    job = client.post("/v1/jobs", json={**body, "priority": "high"}).json()
    assert (job["priority"], job["waiting"]) == (10, "waiting for a worker")
    changed = client.patch(f"/v1/jobs/{job['id']}", json={"priority": -3})
    assert changed.status_code == 200, changed.text
    assert changed.json()["priority"] == client.get(f"/v1/jobs/{job['id']}").json()["priority"] == -3
    assert client.patch(f"/v1/jobs/{job['id']}", json={}).json()["priority"] == -3
    for wrong, code in ((101, "invalid-priority"), ("urgent", "invalid-request"), (True, "invalid-request")):
        problem(client.patch(f"/v1/jobs/{job['id']}", json={"priority": wrong}), 422, code)
        problem(client.post("/v1/jobs", json={**body, "priority": wrong}), 422, code)
        problem(client.post("/v1/jobs/check", json={"budget": {"trials": 1}, "priority": wrong}), 422, code)
    answer = client.post("/v1/jobs", json={**body, "priority": "urgent", "target": 3})
    assert problem(answer, 422, "invalid-request")["detail"] == (
        "target must be a text of at most 2,000 characters, or TVM's target JSON; priority must be low, normal, high, or a whole number from -100 to 100"
    )
    client.post(f"/v1/jobs/{job['id']}/cancel")
    refused = problem(client.patch(f"/v1/jobs/{job['id']}", json={"priority": 0}), 409, "job-state")
    assert refused["detail"] == "the job was cancelled already"
    problem(client.patch("/v1/jobs/job_nothing", json={"priority": 0}), 404, "job-not-found")


def test_a_budget_is_changed(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    job = client.post("/v1/jobs", json=body).json()
    path = f"/v1/jobs/{job['id']}"
    changed = client.patch(path, json={"budget": {"wall_sec": 90.5}}).json()
    assert (changed["budget"]["trials"], changed["budget"]["wall_sec"]) == (64, 90.5)
    changed = client.patch(path, json={"budget": {"trials": None}, "priority": 1}).json()
    assert (changed["budget"]["trials"], changed["budget"]["wall_sec"]) == (None, 90.5)
    assert changed["progress"]["budget"] == client.get(path).json()["budget"] == changed["budget"]
    for wrong, code in (
        ({"wall_sec": None}, "invalid-budget"),
        ({"wall_sec": 0}, "invalid-budget"),
        ({"trials": 1 << 40}, "invalid-budget"),
        ({"trials": "8"}, "invalid-request"),
        ({"minutes": 8}, "invalid-request"),
    ):
        problem(client.patch(path, json={"budget": wrong, "priority": 9}), 422, code)
    assert client.get(path).json()["priority"] == 1, "all of a change, or nothing"
    client.post(f"{path}/cancel")
    problem(client.patch(path, json={"budget": {"trials": 5}}), 409, "job-state")


def test_retry(
    client: TestClient, body: dict[str, Any], services: Services, finished_job: dict[str, Any], problem: Any
) -> None:
    job = client.post("/v1/jobs", json=body).json()
    path = f"/v1/jobs/{job['id']}/retry"
    assert client.post(path).json()["state"] == "queued"  # it goes on anyway
    with services.uow.write() as repos:
        step = repos.steps.find(StepKind.EXTRACT, job["id"])
        assert step is not None
        claimed = repos.steps.claim(step.id, "w", 60.0)
        assert claimed is not None
        error = TransientError("the disk is full", code="store-full").to_json()
        repos.steps.finish(step.id, claimed.fence, state=StepState.FAILED, error=error)
        fail_subject(repos, claimed, error)
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "failed"
    retried = client.post(path).json()
    assert (retried["state"], retried["error"], retried["finished_at"]) == ("queued", None, None)
    kinds = [event["kind"] for event in client.get(f"/v1/jobs/{job['id']}/events").json()["items"]]
    assert kinds == ["queued", "finished", "retried"]
    problem(client.post(f"/v1/jobs/{finished_job['id']}/retry"), 409, "job-state")
    problem(client.post("/v1/jobs/job_nothing/retry"), 404, "job-not-found")


def test_pause_and_resume(client: TestClient, body: dict[str, Any], problem: Any) -> None:
    job = client.post("/v1/jobs", json=body).json()
    for _ in range(2):
        answer = client.post(f"/v1/jobs/{job['id']}/pause")
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == "paused"
        assert answer.json()["progress"]["phase"] == "paused"
    (listed,) = client.get("/v1/jobs", params={"state": "paused"}).json()["items"]
    assert listed["id"] == job["id"]
    for _ in range(2):
        assert client.post(f"/v1/jobs/{job['id']}/resume").json()["state"] == "queued"
    client.post(f"/v1/jobs/{job['id']}/cancel")
    for order in ("pause", "resume"):
        problem(client.post(f"/v1/jobs/{job['id']}/{order}"), 409, "job-state")
        problem(client.post(f"/v1/jobs/job_nothing/{order}"), 404, "job-not-found")


def test_cancel(client: TestClient, body: dict[str, Any], ready_model: Model, problem: Any) -> None:
    job = client.post("/v1/jobs", json=body).json()
    problem(client.delete(f"/v1/models/{ready_model.id}"), 409, "model-in-use")
    for _ in range(2):
        answer = client.post(f"/v1/jobs/{job['id']}/cancel")
        assert answer.status_code == 200
        assert (answer.json()["state"], answer.json()["cancel_requested"]) == ("cancelled", True)
    assert client.delete(f"/v1/models/{ready_model.id}").status_code == 204
    problem(client.post("/v1/jobs/job_nothing/cancel"), 404, "job-not-found")


def test_lists_and_filters(client: TestClient, body: dict[str, Any], ready_model: Model) -> None:
    ids = [client.post("/v1/jobs", json={**body, "seed": n}).json()["id"] for n in range(3)]
    client.post(f"/v1/jobs/{ids[0]}/cancel")

    def listed(**params: Any) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=params).json()["items"]]

    assert listed() == ids[::-1]
    assert listed(state="cancelled") == ids[:1]
    assert listed(model_id=ready_model.id, limit=1) == ids[2:]
    assert listed(model_id="mdl_other") == []
    first = client.get("/v1/jobs", params={"limit": 2}).json()
    assert listed(cursor=first["next_cursor"]) == ids[:1]


def test_tasks_trials_and_events(
    client: TestClient, services: Services, body: dict[str, Any], problem: Any
) -> None:
    job_id = client.post("/v1/jobs", json=body).json()["id"]
    with services.uow.write() as repos:
        repos.workloads.add_many([Workload(key="w", toolchain="t", name="conv", flops=1.0, args=[], ir="")])
        alternative = {"algorithm": "winograd-4", "instead_of": ["w"], "overhead": 1.0}
        task: dict[str, Any] = {"workload_key": "w", "toolchain": "t", "weight": 2, "name": "conv"}
        repos.jobs.add_tasks(job_id, [NewJobTask(**task), NewJobTask(**task, alternative=alternative)])
        repos.jobs.update_task(job_id, 0, best_cost_sec=1e-3, history=[[4, 1e-3]])
        trials = [
            NewTrial(
                position=0,
                ordinal=n,
                config_key=f"c{n}",
                asked_key=f"c{n}",
                outcome="run-crash" if n == 1 else "ok",
                cost_sec=None if n == 1 else 1e-3,
                message="",
                build_sec=0.1,
                run_sec=0.1,
                measured_at=1.0,
            )
            for n in range(4)
        ]
        repos.trials.add_many(job_id, 0, trials)
        for number in range(3):
            repos.events.add(job_id, "round", {"number": number})
    path = f"/v1/jobs/{job_id}"
    progress = client.get(path).json()["progress"]
    names = ("tasks_total", "tasks_with_record", "alternatives_total")
    assert [progress[name] for name in names] == [2, 1, 1]
    assert client.get("/v1/jobs").json()["items"][0]["progress"] == progress
    first, second = client.get(f"{path}/tasks").json()["items"]
    assert first["outcomes"] == {"ok": 3, "run-crash": 1}
    assert first["history"] == [[4, 1e-3]]
    assert second["outcomes"] == {}
    assert "space" not in first

    page = client.get(f"{path}/trials", params={"limit": 3}).json()
    assert [trial["ordinal"] for trial in page["items"]] == [0, 1, 2]
    rest = client.get(f"{path}/trials", params={"cursor": page["next_cursor"]}).json()
    assert [trial["ordinal"] for trial in rest["items"]] == [3]
    failed = client.get(f"{path}/trials", params={"outcome": "run-crash", "position": 0}).json()["items"]
    assert [trial["ordinal"] for trial in failed] == [1]
    problem(client.get(f"{path}/trials", params={"cursor": "nonsense"}), 422, "invalid-cursor")

    events = client.get(f"{path}/events", params={"after": 1, "limit": 2}).json()
    assert ([event["seq"] for event in events["items"]], events["next_cursor"]) == ([2, 3], "3")
    events = client.get(f"{path}/events", params={"after": 3}).json()
    assert ([event["seq"] for event in events["items"]], events["next_cursor"]) == ([4], None)
    for part in ("tasks", "trials", "records", "events", "artifact", "report", "report.html"):
        problem(client.get(f"/v1/jobs/job_nothing/{part}"), 404, "job-not-found")


def test_no_downloads_before_the_end(client: TestClient, job: dict[str, Any], problem: Any) -> None:
    answer = client.get(f"/v1/jobs/{job['id']}/artifact")
    assert problem(answer, 409, "no-artifact")["state"] == "queued"


def test_the_measured_latency(client: TestClient, finished_job: dict[str, Any], services: Services) -> None:
    path = f"/v1/jobs/{finished_job['id']}"
    assert client.get(path).json()["network_latency_sec"] is None
    report = {"latency": {"tuned": {"median_sec": 0.0125}, "untuned": {"median_sec": 0.05}}}
    with services.uow.write() as repos:
        set_report(repos, finished_job["id"], report)
    job = client.get(path).json()
    assert job["network_latency_sec"] == 0.0125
    (name,) = job["speedups"]
    assert (name, job["speedups"][name]["value"]) == ("untuned", 4.0)
    assert [job["network_latency_sec"] for job in client.get("/v1/jobs").json()["items"]] == [0.0125]


def test_downloads(client: TestClient, finished_job: dict[str, Any], problem: Any) -> None:
    path, content = f"/v1/jobs/{finished_job['id']}", finished_job["artifact"]
    etag = f'"{finished_job["artifact_sha256"]}"'
    assert client.get(path).json()["artifact_id"] == finished_job["artifact_id"]

    answer = client.get(f"{path}/artifact")
    assert answer.content == content
    assert answer.headers["etag"] == etag
    assert answer.headers["content-length"] == str(len(content))
    assert "filename*=utf-8''n%C3%A9t.tunefarm" in answer.headers["content-disposition"]
    part_of_it = client.get(f"{path}/artifact", headers={"Range": "bytes=10-19"})
    assert (part_of_it.status_code, part_of_it.content) == (206, content[10:20])
    assert part_of_it.headers["content-range"] == f"bytes 10-19/{len(content)}"
    for odd, status, code in (
        ("bytes=9999999-", 416, "range-not-satisfiable"),
        ("bytes=9-1", 400, "bad-range"),
        ("bytes=x", 400, "bad-range"),
        ("lines=1-2", 400, "bad-range"),
    ):
        refused = client.get(f"{path}/artifact", headers={"Range": odd})
        problem(refused, status, code)
        assert (
            client.head(f"{path}/artifact", headers={"Range": odd}).headers["content-type"]
            == refused.headers["content-type"]
        )
    same = client.get(f"{path}/artifact", headers={"If-None-Match": f'"other", {etag}'})
    assert (same.status_code, same.content) == (304, b"")
