"""What a model that took over its children leaves behind: nothing of it reaches another model's artifact, or another key's jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from app_farm import Farm, farm_settings, make_farm
from onnx import TensorProto, helper, numpy_helper

import tunefarm_tuning
from tunefarm_app.engines.interface import CompiledFile, CompileTerms, ImportedModel
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.tvm import TvmEngine
from tunefarm_app.models.removal import delete_model
from tunefarm_db.acting import Acting, act_as
from tunefarm_db.states.job import JobState
from tunefarm_db.values import ModelState
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.extraction import check_workloads, extract_tasks
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TuningTask

TAKE_ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
DEVICE = RemoteDevice(
    tracker_host="127.0.0.1", tracker_port=9, key="dev", info=DeviceInfo(model="m", num_cores=1, name="d")
)


def network_bytes(seed: int) -> bytes:
    """Return a network of two dense layers with random weights."""
    random = np.random.default_rng(seed)
    sizes = {"w": (32, 48), "v": (48, 16)}
    weights = [
        numpy_helper.from_array(random.standard_normal(size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 32]), ("y", [1, 16]))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    """Two networks that differ in their weights: their kernels are the same."""
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / f"{seed}.onnx" for seed in range(2)]
    for seed, path in enumerate(paths):
        path.write_bytes(network_bytes(seed))
    return [import_model(path) for path in paths]


@pytest.fixture(scope="module")
def tasks(models: list[Model]) -> tuple[TuningTask, ...]:
    return extract_tasks(models[0])


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path))
    farm.add_device()
    yield farm
    farm.services.close()


def test_objects_of_one_model_are_linked_into_no_other(models: list[Model], tmp_path: Path) -> None:
    objects = tmp_path / "kernels"

    def compile_(model: Model) -> None:
        history = History((), Findings(objects=objects))
        tunefarm_tuning.compile(
            model, output=tmp_path / "net", history=history, limits=TAKE_ANY_SPEED, baseline=False
        )

    compile_(models[0])
    planted = [path for path in objects.rglob("*") if path.is_file()]
    assert planted
    for path in planted:  # whole by what they say, as code of the stranger's own would be
        code = b"code of the stranger's own"
        digest = hashlib.sha256(code)
        is_object = path.suffix == ".o"
        path.write_bytes(code + digest.digest() if is_object else digest.hexdigest().encode() + code)
    # No limit counts what has another name.
    (folder,) = {path.parent for path in planted}
    (folder / "kernel_1.o.d").mkdir(mode=0o300)
    (folder / "stray").write_bytes(b"s")
    compile_(models[1])
    assert not (folder / "stray").exists()
    assert not (folder / "kernel_1.o.d").exists()


def test_a_deleted_model_leaves_no_objects(farm: Farm) -> None:
    model = farm.ready_model()
    folder = farm.services.settings.objects_dir / model.sha256
    folder.mkdir(parents=True)
    (folder / "kernel_1.o").touch()
    delete_model(farm.services, model.id)
    assert not folder.exists()


@pytest.mark.parametrize("link", ["kernels", "kernels/folder"])
def test_a_link_that_a_worker_planted_there_is_not_followed(farm: Farm, tmp_path: Path, link: str) -> None:
    """The API deletes them, which may reach files that workers may not."""
    model = farm.ready_model()
    keys, store = tmp_path / "keys", farm.services.settings.objects_dir.parent
    secret = keys / model.sha256 / "key" if link == "kernels" else keys / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("kept")
    if link == "kernels":
        (store / "kernels").symlink_to(keys)
    else:
        (store / "kernels").mkdir()
        (store / "kernels" / model.sha256).symlink_to(keys)
    delete_model(farm.services, model.id)
    assert secret.read_text() == "kept"


def test_real_workloads_are_what_they_say(tasks: tuple[TuningTask, ...]) -> None:
    assert len(tasks) >= 2
    check_workloads(tasks)


@pytest.mark.parametrize("lie", ["key", "ir", "flops", "args"])
def test_a_workload_under_anothers_key_is_refused(tasks: tuple[TuningTask, ...], lie: str) -> None:
    """Jobs of all models that have a key tune, build and run what is stored under it."""
    first, second = (task.workload for task in tasks[:2])
    told: dict[str, Any] = {"key": second.key, "ir": second.ir, "flops": 1e15, "args": second.args}
    forged = replace(tasks[0], workload=replace(first, **{lie: told[lie]}))
    with pytest.raises(InvalidModelError) as caught:
        check_workloads([forged])
    assert caught.value.code == "other-workload"


class TakenOver(TvmEngine):
    """Its imports tell a computation of their own under the key of another."""

    def import_model(self, path: Path, *args: Any, **kwargs: Any) -> ImportedModel:
        imported = super().import_model(path, *args, **kwargs)
        first, second = imported.tasks[:2]
        forged = replace(first, workload=replace(first.workload, key=second.workload.key))
        return replace(imported, tasks=(forged,))


def test_an_import_plants_no_computation(farm: Farm) -> None:
    with closing(TakenOver(farm.services.settings)) as engine:
        stranger = farm.with_engine(engine)
        model = stranger.upload(network_bytes(0))
        stranger.run()
    refused = farm.model(model.id)
    assert (refused.state, (refused.error or {}).get("code")) == (ModelState.FAILED, "other-workload")
    with farm.services.uow.read() as repos:
        assert repos.models.tasks(model.id) == ()


class Finding(ReplayEngine):
    """Notes a finding in each compile, and what it knew before; and whose jobs it serves."""

    def __init__(self) -> None:
        super().__init__()
        self.knew: list[bool] = []
        self.served: list[str | None] = []

    def serve(self, owner: str | None) -> None:
        self.served.append(owner)

    def compile(
        self, model: Model, target: Any, history: History, terms: CompileTerms, **how: Any
    ) -> CompiledFile:
        findings = history.findings.within(target="t")
        self.knew.append(findings.find("kernel", {"workload": "w"}) is not None)
        findings.note("kernel", {"workload": "w"}, {"comparisons": []})
        return super().compile(model, target, history, terms, **how)


def test_findings_of_one_key_count_for_no_other(farm: Farm) -> None:
    engine = Finding()
    theirs = farm.with_engine(engine)
    model = theirs.ready_model()
    owners = ["stranger", "stranger", "victim"]
    for seed, owner in enumerate(owners):
        with act_as(Acting(via="api", key_id=owner, owner=owner)):
            job = theirs.submit(model, trials=4, seed=seed)
        theirs.run_until_quiet()
        assert theirs.job(job.id).state is JobState.SUCCEEDED
    assert engine.knew == [False, True, False]
    assert list(dict.fromkeys(engine.served)) == ["stranger", "victim"]


def test_children_that_served_one_key_serve_no_other(farm: Farm) -> None:
    engine = TvmEngine(farm.services.settings, reach=lambda _device, _gateway: DEVICE)
    (device,) = farm.devices()

    def builder() -> object:
        with engine.measuring(device, cancellation=Cancellation()) as option:
            return option.builder

    with closing(engine):
        builders = []
        for owner in ("stranger", "stranger", "victim", "stranger"):
            engine.serve(owner)
            builders.append(builder())
    assert builders[0] is builders[1]
    assert builders[2] not in (builders[1], builders[3])
