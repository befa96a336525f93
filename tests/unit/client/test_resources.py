"""Answers become values, lists are paged through, and waiting ends with the model or the job."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import (
    Client,
    InvalidRequestError,
    JobCancelledError,
    JobFailedError,
    ModelFailedError,
    WaitTimeoutError,
)
from tunefarm.client.http.retry import RetryPolicy
from tunefarm.client.http.streams import file_name
from tunefarm.client.results.jobs import Job
from tunefarm.client.results.models import Model

MODEL = {
    "id": "mdl_1",
    "name": "net",
    "state": "ready",
    "sha256": "ab",
    "size_bytes": 10,
    "created_at": 1.5,
    "shapes": {"x": [1, 3]},
    "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [], "dtype": "float32"}],
    "operators": [["Conv", 2]],
    "opset": 17,
    "num_params": 1000,
    "error": None,
    "new_in_a_later_version": True,
}
JOB = {
    "id": "job_1",
    "model_id": "mdl_1",
    "state": "tuning",
    "budget": {"trials": 8, "wall_sec": None, "patience_trials": None},
    "trials": 3,
    "progress": {
        "phase": "tuning",
        "tasks_total": 5,
        "tasks_with_record": 2,
        "trials": 3,
        "best_latency_sec": 0.01,
    },
}


def test_a_model_is_read() -> None:
    model = Model.read(MODEL)
    assert model.inputs[0].shape == (1, 3)
    assert model.outputs[0].shape == ()
    assert model.operators == (("Conv", 2),)
    assert model.raw["new_in_a_later_version"] is True
    young = Model.read({"id": "m", "state": "importing"})
    assert young.inputs == ()
    assert young.opset is None
    assert young.state_text == "importing"
    waiting = Model.read(
        {"id": "m", "state": "importing", "waiting": "waiting for a worker: 3 imports before it"}
    )
    assert waiting.state_text == "importing: waiting for a worker: 3 imports before it"


def test_a_job_is_read() -> None:
    job = Job.read(JOB)
    assert not job.is_finished
    assert (job.progress.tasks_total, job.progress.best_latency_sec) == (5, 0.01)
    assert Job.read({"id": "j", "state": "queued"}).progress.phase == "queued"


def test_pages_are_walked(server: Any, client: Client, make_reply: Any) -> None:
    pages = {None: (["a", "b"], "c1"), "c1": (["c"], "c2"), "c2": ([], None)}

    def answer(request: Any) -> Any:
        ids, cursor = pages[request.query.get("cursor", [None])[0]]
        return make_reply(body={"items": [{**MODEL, "id": i} for i in ids], "next_cursor": cursor})

    server.answer = answer
    assert [model.id for model in client.models.all()] == ["a", "b", "c"]
    assert server.requests[0].query == {"limit": ["500"]}


def test_filters_reach_the_server(server: Any, client: Client, make_reply: Any) -> None:
    server.replies = [make_reply(body={"items": [], "next_cursor": None})]
    assert list(client.records.all(workload_key="w", target_key="llvm -mcpu=x")) == []
    assert list(client.jobs.all(state="tuning")) == []
    assert client.devices.list() == ()
    assert client.jobs.events("job_1", after=7) == ()
    assert [request.query for request in server.requests] == [
        {"workload_key": ["w"], "target_key": ["llvm -mcpu=x"], "limit": ["500"]},
        {"state": ["tuning"], "limit": ["500"]},
        {"limit": ["500"]},
        {"after": ["7"]},
    ]


def test_lists_of_a_job(server: Any, client: Client, make_reply: Any) -> None:
    trial = {"position": 1, "round": 0, "outcome": "run-timeout", "message": "too slow"}
    server.replies = [make_reply(body={"items": [trial], "next_cursor": None})]
    assert [(t.outcome, t.cost_sec, t.message) for t in client.jobs.trials("job_1")] == [
        ("run-timeout", None, "too slow")
    ]
    record = {"workload_key": "w", "outcome": "ok", "cost_sec": 1e-3}
    server.replies = [make_reply(body={"items": [record], "next_cursor": None})]
    assert [r.cost_sec for r in client.jobs.records("job_1")] == [1e-3]
    task = {"position": 0, "workload_key": "w", "weight": 2, "name": "conv", "flops": 2e9, "pipeline": "cpu"}
    server.replies = [make_reply(body={"items": [task], "next_cursor": None})]
    assert [t.weight for t in client.models.tasks("mdl_1")] == [2]


def test_waiting_for_a_model(server: Any, client: Client, make_reply: Any) -> None:
    importing = make_reply(body={**MODEL, "state": "importing"})
    server.replies = [importing, importing, make_reply(body=MODEL)]
    states: list[str] = []
    model = client.models.wait("mdl_1", poll_sec=0.001, on_progress=lambda m: states.append(m.state))
    assert model.state == "ready"
    assert states == ["importing", "importing", "ready"]

    error = {
        "kind": "InvalidModelError",
        "code": "unsupported-operator",
        "message": "no Loop",
        "fields": {"node": "n"},
    }
    server.replies = [make_reply(body={**MODEL, "state": "failed", "error": error})]
    with pytest.raises(ModelFailedError, match="no Loop") as failed:
        client.models.wait("mdl_1")
    assert failed.value.code == "unsupported-operator"
    assert failed.value.fields == {"model_id": "mdl_1", "node": "n"}

    proposal = {"shapes": {"x": [1, 3]}, "values": {"sr": 16000}}
    open_input = {**error, "fields": {"proposal": proposal, "options": "--shape x=1,3 --value sr=16000"}}
    server.replies = [make_reply(body={**MODEL, "state": "failed", "error": open_input})]
    with pytest.raises(ModelFailedError) as failed:
        client.models.wait("mdl_1")
    assert failed.value.__notes__ == ["In Python: shapes={'x': (1, 3)}, values={'sr': 16000}"]

    server.replies = [importing]
    with pytest.raises(WaitTimeoutError):
        client.models.wait("mdl_1", timeout_sec=0.0, poll_sec=0.001)


def test_a_mistyped_term_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'minuts': did you mean minutes"):
        client.tune(tmp_path / "net.onnx", minuts=1)  # type: ignore[call-arg]


def test_the_whole_way(server: Any, client: Client, make_reply: Any, tmp_path: Path) -> None:
    jobs = [{**JOB, "state": state} for state in ("queued", "tuning", "compiling", "succeeded")]
    attachment = {"Content-Disposition": 'attachment; filename="net.tunefarm"'}

    def answer(request: Any) -> Any:
        match request.method, request.path:
            case "POST", "/v1/jobs/check":
                return make_reply(body={})
            case "POST", "/v1/models":
                return make_reply(status=202, body={**MODEL, "state": "importing"})
            case "GET", "/v1/models/mdl_1":
                return make_reply(body=MODEL)
            case "POST", "/v1/jobs":
                return make_reply(status=201, body=jobs[0])
            case "GET", "/v1/jobs/job_1":
                return make_reply(body=jobs.pop(0) if len(jobs) > 1 else jobs[0])
            case "GET", "/v1/jobs/job_1/artifact":
                return make_reply(body=b"zip", headers=attachment, content_type="application/octet-stream")
            case "GET", "/v1/jobs/job_1/artifact.intoto.jsonl":
                return make_reply(body=b'{"payload":""}\n', content_type="application/jsonl")
            case "GET", "/v1/jobs/job_1/report":
                return make_reply(body={"latency": {}})
            case "GET", "/v1/jobs/job_1/report.html":
                return make_reply(body=b"<!DOCTYPE html>", content_type="text/html; charset=utf-8")
        raise AssertionError(request.path)

    server.answer = answer
    file = tmp_path / "net.onnx"
    file.write_bytes(b"onnx")
    job = client.tune(
        file,
        target="host",
        search_minutes=1,
        seconds=30,
        tuner="ga",
        seed=3,
        device_key="k",
        patience=9,
        min_gain=0.01,
        precision="float16-weights",
        other_shapes=False,
        baselines="openvino, litert",
    )
    sent = next(request.json for request in server.requests if request.path == "/v1/jobs")
    assert sent == {
        "model_id": "mdl_1",
        "target": "host",
        "device_key": "k",
        "tuner": "ga",
        "seed": 3,
        "options": {
            "precision": "float16-weights",
            "other_shapes": False,
            "baselines": ["openvino", "litert"],
        },
        "budget": {"wall_sec": 90.0, "patience_trials": 9, "min_gain_per_min": 0.01},
    }
    assert [request.path for request in server.requests][:2] == ["/v1/jobs/check", "/v1/models"]
    assert {"model_id": "mdl_1", **server.requests[0].json} == sent
    seen: list[str] = []
    assert job.wait(lambda j: seen.append(j.state), poll_sec=0.001).state == "succeeded"
    assert seen == ["queued", "tuning", "compiling", "succeeded"]
    files = job.download(tmp_path / "out")
    assert files.artifact.read_bytes() == b"zip"
    assert files.artifact.with_name("net.tunefarm.intoto.jsonl").read_text() == '{"payload":""}\n'
    assert files.report.name == "net.report.json"
    assert json.loads(files.report.read_text()) == {"latency": {}}
    assert files.report_page.name == "net.report.html"
    assert files.report_page.read_text() == "<!DOCTYPE html>"


def test_a_typo_costs_no_upload(server: Any, client: Client, make_problem: Any, tmp_path: Path) -> None:
    server.replies = [make_problem(422, "unknown-tuner", "there is no tuner xgp")]
    with pytest.raises(InvalidRequestError, match="no tuner xgp"):
        client.tune(tmp_path / "net.onnx", trials=8, tuner="xgp", tags=["a"], note="why")
    assert [request.path for request in server.requests] == ["/v1/jobs/check"]
    assert (server.requests[0].json["tags"], server.requests[0].json["note"]) == (["a"], "why")


def test_jobs_that_end_badly(server: Any, client: Client, make_reply: Any) -> None:
    error = {"code": "no-device", "message": "nobody measures", "fields": {"device_key": "k"}}
    server.replies = [make_reply(body={**JOB, "state": "failed", "error": error})]
    with pytest.raises(JobFailedError, match="nobody") as failed:
        client.job("job_1").wait()
    assert (failed.value.code, failed.value.fields["device_key"]) == ("no-device", "k")
    assert client.job("job_1").wait(check=False).state == "failed"
    server.replies = [make_reply(body={**JOB, "state": "cancelled"})]
    with pytest.raises(JobCancelledError):
        client.job("job_1").wait()
    server.replies = [make_reply(body=JOB)]
    with pytest.raises(WaitTimeoutError):
        client.job("job_1").wait(timeout_sec=0.0, poll_sec=0.001)


def test_a_budget_is_asked_for_before_anything_is_sent(server: Any, client: Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="budget"):
        client.tune(tmp_path / "net.onnx")
    assert server.requests == []


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="net.tunefarm"', "net.tunefarm"),
        ("attachment; filename=../../etc/passwd", "passwd"),
        ('attachment; filename="..\\\\..\\\\x y\x1b[2J.tunefarm"', "x_y_2J.tunefarm"),
        ("attachment; filename*=UTF-8''na%C3%AFve.tunefarm", "na_ve.tunefarm"),
        ('attachment; filename=".."', None),
        ('attachment; filename=".bashrc"', "bashrc"),
        ("attachment", None),
        ("", None),
    ],
)
def test_file_names_from_the_server(header: str, name: str | None) -> None:
    assert file_name(header) == name


def test_backoff_grows_to_a_cap() -> None:
    policy = RetryPolicy(base_sec=1.0, cap_sec=5.0, retry_after_cap_sec=30.0)
    assert [policy.wait_sec(n, None, lambda: 1.0) for n in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.wait_sec(1, None, lambda: 0.0) == 0.5
    assert policy.wait_sec(1, "7", lambda: 0.0) == 7.0
    assert policy.wait_sec(1, "700", lambda: 0.0) == 30.0
    for senseless in (
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "soon",
        "-5",
        "1.5",
        "²",
        "",
        "Wed, 99 Oct 2095 07:28:00",
    ):
        assert policy.wait_sec(1, senseless, lambda: 1.0) == 1.0
    assert policy.wait_sec(1, "Fri, 21 Oct 2095 07:28:00 GMT", lambda: 1.0) == 30.0
    in_a_while = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
    patient = RetryPolicy(retry_after_cap_sec=1e6)
    assert 0 < patient.wait_sec(1, in_a_while, lambda: 1.0) <= 3600


def test_importing_the_package_is_light() -> None:
    program = (
        "import sys, tunefarm; assert 'httpx' not in sys.modules; tunefarm.Client; tunefarm.AsyncClient; assert tunefarm.__version__;"
        "assert {'AsyncClient', 'Client', 'load'} <= set(dir(tunefarm));"
        "bad = {'tvm', 'numpy', 'sqlalchemy', 'fastapi', 'celery', 'typer', 'tunefarm_tuning', 'tunefarm_db'}"
        " & set(sys.modules); assert not bad, bad; assert callable(tunefarm.load); import tunefarm.artifact;"
        "assert callable(tunefarm.load)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
