"""The steps on real TVM: a model is imported, tuned over RPC, compiled, checked."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefarm_app.blob_store import BlobStore
from tunefarm_app.cancel_job import cancel_job
from tunefarm_app.composition import Services
from tunefarm_app.register_device import DeviceRegistration, register_device
from tunefarm_app.run_step import run_steps
from tunefarm_app.settings import Settings
from tunefarm_app.submit_job import JobRequest, submit_job
from tunefarm_app.submit_model import submit_model
from tunefarm_app.tvm_engine import TvmEngine
from tunefarm_db.engine import make_engine
from tunefarm_db.job_state import JobState
from tunefarm_db.schema import upgrade
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import ModelState, StepKind
from tunefarm_tuning.budget import Budget
from tunefarm_tuning.host import host_device_model
from tunefarm_tuning.targets import detect_host_target
from tunefarm_tuning.testing.local_rpc import local_rpc


def _support(name: str) -> Any:
    path = Path(__file__).parents[2] / "support" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tests_support_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


class Inbox:
    """A `Dispatcher` whose messages are taken out by hand."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def send(self, step_id: str, kind: StepKind) -> bool:
        self.messages.append(step_id)
        return True

    def queue_length(self, kind: StepKind) -> int | None:
        return len(self.messages)

    def ping(self) -> bool:
        return True

    def close(self) -> None:
        pass


@dataclasses.dataclass
class Farm:
    services: Services
    inbox: Inbox

    def run(self) -> None:
        while self.inbox.messages:
            run_steps(self.inbox.messages.pop(0), self.services)

    def upload(self, data: bytes, **shapes: list[int]) -> Any:
        blob = self.services.blobs.put([data])
        model = submit_model(self.services, name="tiny.onnx", blob=blob, shapes=shapes).model
        self.run()
        with self.services.uow.read() as repos:
            return repos.models.get(model.id)

    def job(self, job_id: str) -> Any:
        with self.services.uow.read() as repos:
            return repos.jobs.get(job_id)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'farm.db'}",
        broker_url="redis://127.0.0.1:1/0",
        store_dir=tmp_path / "store",
        build_workers=1,
    )
    upgrade(settings.database_url.get_secret_value())
    inbox = Inbox()
    services = Services(
        settings=settings,
        uow=UnitOfWork(make_engine(settings.database_url.get_secret_value())),
        blobs=BlobStore(settings.store_dir),
        dispatcher=inbox,
        engine=TvmEngine(settings),
    )
    yield Farm(services, inbox)
    services.close()
    assert _children() == [], "the engine leaves no process behind"


def _children() -> list[str]:
    """Return the command lines of our living children that run the engine's modules."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in found if "tunefarm_tuning.child" in line and "local_rpc" not in line]


@pytest.fixture
def tiny_model() -> bytes:
    models = _support("onnx_models")
    graph = models.GraphBuilder()
    x = graph.input("x", [1, 32])
    hidden = graph.node("Relu", graph.node("MatMul", x, graph.weight(32, 64)))
    graph.output(graph.node("MatMul", hidden, graph.weight(64, 8)), [1, 8])
    data: bytes = graph.model().SerializeToString()
    return data


def test_a_whole_job_on_tvm(farm: Farm, tiny_model: bytes, tmp_path: Path) -> None:
    model = farm.upload(tiny_model)
    assert model.state is ModelState.READY, model.error
    assert model.operators == [["MatMul", 2], ["Relu", 1]]
    with farm.services.uow.read() as repos:
        assert len(repos.models.tasks(model.id)) >= 2
    with local_rpc() as rpc:
        register_device(
            farm.services,
            DeviceRegistration(
                name="dev-1",
                device_key="pool",
                target=detect_host_target().to_json(),
                info={},
                device_model=host_device_model(),
                tracker_host=rpc.device.tracker_host,
                tracker_port=rpc.device.tracker_port,
                rpc_key=rpc.device.key,
            ),
        )
        job = submit_job(
            farm.services, JobRequest(model_id=model.id, budget=Budget(trials=12), round_size=4)
        ).job
        farm.run()
        job = farm.job(job.id)
        assert job.state is JobState.SUCCEEDED, job.error
        assert job.trials == 12
        with farm.services.uow.read() as repos:
            artifact = repos.artifacts.for_job(job.id)
            outcomes = {t.outcome for t in repos.trials.page(job.id, limit=500).items}
        assert "ok" in outcomes
        assert artifact is not None
        assert artifact.report["checks"]
        path = farm.services.blobs.path(artifact.sha256)
        assert zipfile.is_zipfile(path)
        assert json.dumps(artifact.manifest)

        # A second job knows the tasks, and is cancelled within seconds while the compiler works.
        second = submit_job(farm.services, JobRequest(model_id=model.id, budget=Budget(trials=1))).job
        thread = threading.Thread(target=farm.run)
        thread.start()
        deadline = time.monotonic() + 300
        while farm.job(second.id).progress.get("step") is None:
            assert time.monotonic() < deadline
            assert thread.is_alive(), farm.job(second.id).error
            time.sleep(0.05)
        cancel_job(farm.services, second.id)
        thread.join(120)
        assert not thread.is_alive()
        assert farm.job(second.id).state is JobState.CANCELLED
        with farm.services.uow.read() as repos:
            assert repos.artifacts.for_job(second.id) is None
            assert repos.devices.in_pool("pool")[0].lease_owner is None


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\x08\x07garbage that is no protobuf", None), (b"\x3a\xff\xff\xff\xff\x07", None)],
)
def test_a_bad_file_fails_its_model_at_the_first_try(farm: Farm, data: bytes, code: str | None) -> None:
    model = farm.upload(data)
    assert model.state is ModelState.FAILED
    assert model.error["kind"] == "InvalidModelError"
    assert model.error["message"]
    assert farm.inbox.messages == []


def test_an_unknown_dimension_is_named(farm: Farm) -> None:
    models = _support("onnx_models")
    graph = models.GraphBuilder()
    x = graph.input("x", ["batch", 8])
    graph.output(graph.node("MatMul", x, graph.weight(8, 4)), ["batch", 4])
    data = graph.model().SerializeToString()
    model = farm.upload(data)
    assert model.error["code"] == "unknown-dimension"
    assert "batch" in model.error["message"]
    bound = farm.upload(data, x=[2, 8])
    assert bound.state is ModelState.READY
    assert bound.inputs[0]["shape"] == [2, 8]
