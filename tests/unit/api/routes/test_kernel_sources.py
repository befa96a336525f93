"""A kernel's source over HTTP, and the records of one job as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Job
from tunefarm_tuning.compiler.kernel_source import KernelSource, SourceText
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.workload.task import TuningTask


class Cutting(ReplayEngine):
    """Keeps the beginning of a source, and no LLVM."""

    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        text = SourceText(kind="cuda", text="first line\n", size_bytes=5_000_000)
        return KernelSource(toolchain=self.toolchain, texts=(text,))


class Refusing(ReplayEngine):
    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        raise InvalidInputError("it does not fit", code="does-not-apply")


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path))
    yield farm
    farm.services.close()


@pytest.fixture
def client(farm: Farm) -> Iterator[TestClient]:
    app = create_app(farm.services.settings, reconcile=False)
    with TestClient(app, raise_server_exceptions=False) as client:
        app.state.services = farm.services
        key = create_api_key(farm.services, name="reader", scopes=["read"])[1]
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


@pytest.fixture
def done(farm: Farm) -> Job:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, seed=5)), trials=8)
    farm.run()
    return farm.job(job.id)


def source(client: TestClient, job: Job, kind: str | None = None, **headers: str) -> Any:
    params = {} if kind is None else {"kind": kind}
    return client.get(f"/v1/jobs/{job.id}/tasks/0/source", params=params, headers=headers)


def test_it_is_made_and_then_served(client: TestClient, farm: Farm, done: Job, problem: Any) -> None:
    document = problem(source(client, done), 409, "source-being-made")
    assert "ask again" in document["detail"]
    farm.run()
    answer = source(client, done)
    assert answer.status_code == 200
    assert answer.text.startswith("# a simulation has no kernels")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("inline; filename=")
    assert source(client, done, "asm").headers["content-disposition"].endswith('.s"')
    etag = answer.headers["etag"]
    assert source(client, done, "asm").headers["etag"] != etag
    unchanged = source(client, done, **{"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    head = client.head(f"/v1/jobs/{done.id}/tasks/0/source")
    assert (head.status_code, head.content) == (200, b"")
    document = problem(source(client, done, "cuda"), 404, "no-such-source")
    assert document["kinds"] == ["schedule", "llvm", "asm"]
    problem(source(client, done, "perl"), 422, "invalid-request")


def test_what_is_cut_says_so(client: TestClient, farm: Farm, done: Job) -> None:
    source(client, done)
    farm.with_engine(Cutting()).run()
    text = source(client, done, "cuda").text
    assert text == "first line\n// … truncated: the whole source has 5,000,000 bytes\n"


def test_what_cannot_be_made(client: TestClient, farm: Farm, done: Job, problem: Any) -> None:
    source(client, done)
    farm.with_engine(Refusing()).run()
    document = problem(source(client, done), 409, "source-not-made")
    assert document["reason"] == "does-not-apply"
    assert "it does not fit" in document["detail"]


def test_what_is_not_there(client: TestClient, farm: Farm, done: Job, problem: Any) -> None:
    problem(client.get(f"/v1/jobs/{done.id}/tasks/1/source"), 404, "task-not-found")
    problem(client.get("/v1/jobs/job_x/tasks/0/source"), 404, "job-not-found")
    problem(client.get(f"/v1/jobs/{done.id}/tasks/-1/source"), 422, "invalid-request")
    fresh = farm.submit(farm.ready_model(Scenario(tasks=1, seed=77)), trials=8)
    problem(client.get(f"/v1/jobs/{fresh.id}/tasks/0/source"), 404, "task-not-found")
    farm.run(steps=1)
    problem(client.get(f"/v1/jobs/{fresh.id}/tasks/0/source"), 409, "no-kernel")
    client.headers.pop("Authorization")
    problem(source(client, done), 401, "unauthenticated")


def test_the_records_of_a_job_as_a_file(client: TestClient, done: Job, problem: Any) -> None:
    answer = client.get(f"/v1/jobs/{done.id}/records.jsonl")
    assert answer.headers["content-type"].startswith("application/jsonl")
    records = [TuningRecord.from_json(line) for line in answer.text.splitlines()]
    assert len(records) == 8
    problem(client.get("/v1/jobs/job_x/records.jsonl"), 404, "job-not-found")


def test_records_by_operator_and_shape(client: TestClient, farm: Farm, done: Job, problem: Any) -> None:
    second = farm.submit(farm.ready_model(Scenario(tasks=3, seed=6)), trials=12)
    farm.run()
    for path, all_of_one in (("/v1/records", 4), ("/v1/records/best", 1)):

        def keys_of(path: str = path, **params: str) -> list[str]:
            answer = client.get(path, params={"limit": "500", **params})
            assert answer.status_code == 200, answer.text
            return [item["workload_key"] for item in answer.json()["items"]]

        everything = keys_of()
        assert keys_of(operator="MATMUL") == everything
        assert keys_of(operator="matmul", shape="1x8") == everything
        assert keys_of(shape="1,8") == everything
        assert len(keys_of(operator="matmul_2")) == all_of_one
        assert keys_of(operator="conv2d") == []
        assert keys_of(operator="%") == []
        assert keys_of(shape="8x1") == []
        assert keys_of(shape="9999999999") == []
        key = tasks_of(farm, second)[0].workload_key
        assert keys_of(operator="matmul", workload_key=key) == [
            listed for listed in everything if listed == key
        ]
        assert keys_of(operator=key[:12]) == [listed for listed in everything if listed == key]
        for wrong in ("1x", "x", "1x-1", "1.5", "99999999999999"):
            problem(client.get(path, params={"shape": wrong}), 422, "bad-shape")
        problem(client.get(path, params={"operator": "x" * 201}), 422, "invalid-request")
        parts: list[str] = []
        cursor = None
        while True:
            params = {"operator": "matmul", "limit": "2", **({} if cursor is None else {"cursor": cursor})}
            answer = client.get(path, params=params).json()
            parts += [item["workload_key"] for item in answer["items"]]
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        assert parts == everything


def tasks_of(farm: Farm, job: Job) -> Any:
    with farm.services.uow.read() as repos:
        return repos.jobs.tasks(job.id)
