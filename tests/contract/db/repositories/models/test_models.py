"""Models, their tasks, and blobs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import ModelState, Workload
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

READY: dict[str, Any] = {
    "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1], "dtype": "float32"}],
    "operators": [("Conv", 2), ("Relu", 1)],
    "opset": 17,
    "num_params": 3_000_000_000,
}


def test_a_model_becomes_ready(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model(shapes={"x": (1, 3)})
    assert model.state is ModelState.IMPORTING
    assert model.shapes == {"x": [1, 3]}
    with uow.write() as repos:
        ready = repos.models.set_ready(model.id, **READY)
    with uow.read() as repos:
        assert repos.models.get(model.id) == ready
        assert abs(repos.now() - ready.created_at) < 600
    assert ready.state is ModelState.READY
    assert ready.operators == [["Conv", 2], ["Relu", 1]]
    assert ready.num_params == 3_000_000_000


def test_equal_bytes_and_shapes_are_one_model(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model(shapes={"a": (1,), "b": (2,)})
    with uow.read() as repos:
        assert repos.models.find(model.sha256, {"b": [2], "a": [1]}) == model
        assert repos.models.find(model.sha256) is None
    with pytest.raises(ConflictError):
        seed.model(shapes={"b": [2], "a": [1]})
    assert seed.model(shapes={"a": (1,), "b": (3,)}).id != model.id
    bound = seed.model(shapes={"a": (1,), "b": (2,)}, values={"sr": 16000})
    assert (bound.id != model.id, bound.values, model.values) == (True, {"sr": 16000}, {})


def test_a_deleted_model_frees_its_sha256(uow: UnitOfWork, seed: Any) -> None:
    first = seed.model()
    with uow.write() as repos:
        assert repos.models.delete(first.id).state is ModelState.DELETED
    second = seed.model()
    with uow.read() as repos:
        assert [m.id for m in repos.models.list().items] == [second.id]
        assert repos.models.get(first.id, deleted=True).id == first.id
        with pytest.raises(NotFoundError) as gone:
            repos.models.get(first.id)
        assert gone.value.code == "model-deleted"
        assert gone.value.message == f"the model {first.name} was deleted: upload its file again"
        with pytest.raises(NotFoundError) as unknown:
            repos.models.get("mdl_nothing")
        assert unknown.value.code == "model-not-found"
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.models.delete(first.id)


def test_only_an_importing_model_can_become_ready_or_failed(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    error = {"kind": "InvalidModelError", "code": "truncated-model", "message": "…", "fields": {}}
    with uow.write() as repos:
        assert repos.models.set_failed(model.id, error).error == error
    with pytest.raises(ConflictError) as refused, uow.write() as repos:
        repos.models.set_ready(model.id, **READY)
    assert refused.value.fields == {"state": "failed"}
    with uow.write() as repos:
        again = repos.models.set_importing(model.id)
    assert (again.state, again.error) == (ModelState.IMPORTING, None)


def test_list_pages_newest_first(uow: UnitOfWork, seed: Any) -> None:
    ids = [seed.model(sha256=f"{number:064x}").id for number in range(5)]
    seen: list[str] = []
    cursor = None
    with uow.read() as repos:
        while True:
            page = repos.models.list(cursor=cursor, limit=2)
            seen += [m.id for m in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert seen == ids[::-1]


def test_tasks_come_with_their_workloads(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    workloads = [
        Workload(key=f"w{n}", toolchain="tvm-1", name=f"conv{n}", flops=1e9, args=[{"name": "a"}], ir="{}")
        for n in range(3)
    ]
    with uow.write() as repos:
        repos.workloads.add_many(workloads)
        repos.workloads.add_many(workloads[:1])  # there already
        repos.models.set_tasks(model.id, pipeline="cpu", toolchain="tvm-1", tasks=[("w2", 1), ("w0", 4)])
        repos.models.set_tasks(model.id, pipeline="cpu", toolchain="tvm-1", tasks=[("w1", 2), ("w0", 4)])
        repos.models.set_tasks(model.id, pipeline="gpu", toolchain="tvm-1", tasks=[("w2", 1)])
    with uow.read() as repos:
        tasks = repos.models.tasks(model.id, pipeline="cpu", toolchain="tvm-1")
        assert [(t.position, t.name, t.weight) for t in tasks] == [(0, "conv1", 2), (1, "conv0", 4)]
        assert len(repos.models.tasks(model.id)) == 3
        flops = repos.models.flops(model.id, pipeline="cpu", toolchain="tvm-1")
        assert flops == {task.workload_key: task.flops for task in tasks}
        assert repos.workloads.get("w2", "tvm-1") == workloads[2]
        assert set(repos.workloads.get_many(["w0", "w9"], "tvm-1")) == {"w0"}
        assert repos.workloads.toolchains(["w0", "w9"]) == {"w0": ["tvm-1"]}
        with pytest.raises(NotFoundError):
            repos.workloads.get("w0", "tvm-2")


def test_a_task_says_what_it_is_an_alternative_to(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    alternative = {"algorithm": "winograd-4", "instead_of": ["w0"], "overhead": 0.5}
    with uow.write() as repos:
        repos.workloads.add_many(
            [
                Workload(key=f"w{n}", toolchain="tvm-1", name=f"conv{n}", flops=1.0, args=[], ir="{}")
                for n in range(2)
            ]
        )
        repos.models.set_tasks(
            model.id,
            pipeline="cpu",
            toolchain="tvm-1",
            tasks=[("w0", 1), ("w1", 1)],
            alternatives={"w1": alternative},
        )
    with uow.read() as repos:
        assert [task.alternative for task in repos.models.tasks(model.id)] == [None, alternative]


def test_a_task_needs_its_workload(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.models.set_tasks(model.id, pipeline="cpu", toolchain="tvm-1", tasks=[("w2", 1)])


def test_a_failed_model_needs_no_blob(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    other = seed.model(shapes={"x": [1, 4]})
    with uow.write() as repos:
        repos.blobs.add(model.sha256, size_bytes=10, media_type="application/octet-stream")
        repos.models.set_failed(model.id, {"code": "external-data", "message": "no"})
        assert repos.blobs.is_referenced(model.sha256)  # the same bytes with other shapes may do
        repos.models.set_failed(other.id, {"code": "external-data", "message": "no"})
        assert repos.blobs.delete(model.sha256)


@pytest.mark.parametrize(
    ("code", "kept"), [("unknown-dimension", True), ("bad-value", True), ("invalid-onnx", False)]
)
def test_a_model_that_lacks_a_binding_needs_its_blob(
    uow: UnitOfWork, seed: Any, code: str, kept: bool
) -> None:
    model = seed.model()
    with uow.write() as repos:
        repos.blobs.add(model.sha256, size_bytes=10, media_type="application/octet-stream")
        failed = repos.models.set_failed(model.id, {"code": code, "message": "no"})
        assert failed.needs_binding is kept
        assert repos.blobs.delete(model.sha256) is not kept
        repos.models.delete(model.id)
        assert not repos.blobs.is_referenced(model.sha256)


def test_blobs_live_while_something_needs_them(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    with uow.write() as repos:
        repos.blobs.add(model.sha256, size_bytes=10, media_type="application/octet-stream")
        repos.blobs.add(model.sha256, size_bytes=10, media_type="application/octet-stream")
        assert repos.blobs.is_referenced(model.sha256)
        assert not repos.blobs.delete(model.sha256)
        repos.models.delete(model.id)
        assert not repos.blobs.is_referenced(model.sha256)
        assert repos.blobs.delete(model.sha256)
        assert repos.blobs.find(model.sha256) is None


def test_versions_of_a_name(seed: Any, uow: UnitOfWork) -> None:
    first, second, other = (
        seed.model(sha256=f"{number:064}", name=name) for number, name in enumerate(("ocr", "ocr", "ocr@2"))
    )
    assert [model.version for model in (first, second, other)] == [1, 2, 1]
    with uow.write() as repos:
        repos.models.delete(second.id)
    third = seed.model(sha256="c" * 64, name="ocr")
    assert third.version == 3, "the version of a deleted model is not given out again"
    with uow.write() as repos:
        repos.models.take_version(third.id, of=second)
        assert repos.models.get(third.id).version == 2


def test_models_that_get_one_name_at_once_get_versions_of_their_own(seed: Any) -> None:
    at_once = threading.Barrier(8)

    def add(number: int) -> int:
        at_once.wait()
        return int(seed.model(sha256=f"{number:064x}", name="ocr").version)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(add, range(8))) == list(range(1, 9))
