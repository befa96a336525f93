"""Models over HTTP: uploaded, listed, deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import tunefarm.client
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.values import Model, StepKind, StepState, Workload
from tunefarm_tuning.workload.runtime_part import NotCompiled, OpenSpec, RuntimePart

ONNX_BYTES = b"\x08\x0a" + bytes(range(200))
BINARY = {"Content-Type": "application/octet-stream"}


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def upload(client: TestClient, content: Any = ONNX_BYTES, **params: Any) -> Any:
    return client.post("/v1/models", params=params, content=content, headers=BINARY)


def test_an_upload_is_stored_and_its_import_planned(
    client: TestClient, services: Services, settings: Settings
) -> None:
    answer = upload(client, name="net", shape=["x=1,3,224,224", "a:b=c=2", "scalar="])
    assert answer.status_code == 202, answer.text
    model = answer.json()
    assert answer.headers["location"] == f"/v1/models/{model['id']}"
    assert (model["name"], model["state"], model["size_bytes"]) == ("net", "importing", len(ONNX_BYTES))
    assert model["sha256"] == hashlib.sha256(ONNX_BYTES).hexdigest()
    assert model["shapes"] == {"x": [1, 3, 224, 224], "a:b=c": [2], "scalar": []}
    assert services.blobs.path(model["sha256"]).read_bytes() == ONNX_BYTES
    assert len(files_in(settings.store_dir)) == 1
    with services.uow.read() as repos:
        step = repos.steps.find(StepKind.IMPORT, model["id"])
    assert step is not None
    assert step.state is StepState.READY
    assert client.get(f"/v1/models/{model['id']}").json() == model


def test_an_import_says_what_it_waits_for(client: TestClient, services: Services) -> None:
    first, second, third = (upload(client, name="net", shape=f"x={n}").json() for n in (1, 2, 3))
    waits = [model["waiting"] for model in (first, second, third)]
    assert waits == [
        "waiting for a worker",
        "waiting for a worker: 1 import before it",
        "waiting for a worker: 2 imports before it",
    ]
    with services.uow.write() as repos:
        step = repos.steps.find(StepKind.IMPORT, first["id"])
        assert step is not None
        assert repos.steps.claim(step.id, "a worker", 600.0)
    assert client.get(f"/v1/models/{first['id']}").json()["waiting"] is None
    assert client.get(f"/v1/models/{third['id']}").json()["waiting"] == waits[1]


def test_the_same_bytes_are_the_same_model(client: TestClient) -> None:
    first = upload(client, name="one")
    again = upload(client, name="two")
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == first.json()
    other = upload(client, name="one", shape="x=1,3")
    assert other.status_code == 202
    assert other.json()["id"] != first.json()["id"]


def test_several_sizes_of_a_dimension_are_kept_as_their_canonical_text(
    client: TestClient, problem: Any
) -> None:
    model = upload(client, shape=["x=1..8, 3,160|320 @8,1", "y=2"]).json()
    assert model["shapes"] == {"x": "1..8,3,160|320@1,8", "y": [2]}
    assert model["specialisations"] == []
    again = upload(client, shape=["x=1..8,3,160|320@1,8", "y=2"])
    assert (again.status_code, again.json()["id"]) == (200, model["id"])
    many = "|".join(map(str, range(1, 66)))
    assert "65 combinations" in problem(upload(client, shape=f"x={many}"), 422, "too-many-shapes")["detail"]
    assert "at character 3" in problem(upload(client, shape="x=1,3..4"), 422, "bad-shape")["detail"]


def test_an_upload_without_a_length(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield ONNX_BYTES[:7]
        yield ONNX_BYTES[7:]

    answer = upload(client, chunks())
    assert answer.status_code == 202
    assert answer.json()["sha256"] == hashlib.sha256(ONNX_BYTES).hexdigest()
    assert answer.json()["name"] == "model"


@pytest.mark.parametrize("announced", [True, False])
def test_an_upload_over_the_limit(
    client: TestClient, settings: Settings, problem: Any, announced: bool
) -> None:
    content = b"\x08" * (settings.max_upload_bytes + 1)
    document = problem(upload(client, content if announced else iter([content])), 413, "too-large")
    assert document["limit_bytes"] == settings.max_upload_bytes
    assert files_in(settings.store_dir) == []
    at_the_limit = upload(client, b"\x08" * settings.max_upload_bytes)
    assert at_the_limit.status_code == 202


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty-file"),
        (b"not a model", "not-protobuf"),
        (b"PK\x03\x04 a zip", "not-protobuf"),
        (b"\x80\x04 a pickle", "not-protobuf"),
    ],
)
def test_what_cannot_be_a_model_is_refused_at_once(
    client: TestClient, services: Services, settings: Settings, problem: Any, content: bytes, code: str
) -> None:
    problem(upload(client, content), 422, code)
    assert files_in(settings.store_dir) == []
    assert client.get("/v1/models").json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    "shape", ["x", "=1,2", "x=1,a", "x=1,-2", "x=1,0", "x=1,,2", "x=1.5", "x=²", "x=" + "9" * 30]
)
def test_bad_shapes(client: TestClient, settings: Settings, problem: Any, shape: str) -> None:
    problem(upload(client, shape=shape), 422, "bad-shape")
    assert files_in(settings.store_dir) == []


@pytest.mark.parametrize(
    ("shape", "position"),
    [
        ("1,3,48,160|", 11),
        ("1,3,48,160||320", 11),
        ("1,3,160|320|160", 12),
        ("1,3,160:0", 8),
        ("1,3,160;320", 7),
        ("1,1..8", 2),
        ("8..1,3", 0),
        ("1,3@4", 3),
        ("1..8,3@1,4", 7),
        ("1..8,3@9", 7),
    ],
)
def test_a_bad_shape_names_the_position(
    client: TestClient, settings: Settings, problem: Any, shape: str, position: int
) -> None:
    document = problem(upload(client, shape=f"x={shape}"), 422, "bad-shape")
    assert (document["input"], document["position"]) == ("x", position)
    assert f"at character {position + 1} of '{shape}'" in document["detail"]
    assert files_in(settings.store_dir) == []


def test_too_many_sizes_are_refused_before_the_upload_is_kept(
    client: TestClient, settings: Settings, problem: Any
) -> None:
    sizes = "|".join(map(str, range(1, 66)))
    for shape in (f"1,{sizes}", f"1..65@{','.join(map(str, range(1, 66)))}"):
        document = problem(upload(client, shape=f"x={shape}"), 422, "too-many-shapes")
        assert (document["count"], document["limit"]) == (65, 64)
    assert files_in(settings.store_dir) == []
    assert client.get("/v1/models").json()["items"] == []


@pytest.mark.parametrize(
    "value",
    ["sr", "=1", "sr=", "sr=fast", "sr=nan", "sr=NaN", "sr=1e999", "sr=[1,[2]]", "sr=[]", "sr=" + "9" * 30],
)
def test_bad_values(client: TestClient, settings: Settings, problem: Any, value: str) -> None:
    problem(upload(client, value=value), 422, "bad-value")
    assert files_in(settings.store_dir) == []


def test_values_are_part_of_what_a_model_is(client: TestClient) -> None:
    first = upload(client, value=["sr=16000", "on=true", "scales=1.5,2"]).json()
    assert first["values"] == {"sr": 16000, "on": True, "scales": [1.5, 2]}
    same = upload(client, value=["scales=[1.5,2]", "on=TRUE", "sr=16000"])
    assert (same.status_code, same.json()["id"]) == (200, first["id"])
    others = [upload(client).json(), upload(client, value="sr=8000").json()]
    assert len({first["id"], *(other["id"] for other in others)}) == 3
    assert others[0]["values"] == {}


def test_a_shape_given_twice(client: TestClient, problem: Any) -> None:
    problem(upload(client, shape=["x=1", "x=2"]), 422, "bad-shape")


def test_a_form_is_not_a_file(client: TestClient, settings: Settings, problem: Any) -> None:
    answer = client.post("/v1/models", files={"file": ("net.onnx", ONNX_BYTES)})
    assert "octet-stream" in problem(answer, 415, "unsupported-media-type")["detail"]
    assert files_in(settings.store_dir) == []


def test_lists_and_pages(client: TestClient) -> None:
    ids = [upload(client, ONNX_BYTES + bytes([n])).json()["id"] for n in range(3)]
    first = client.get("/v1/models", params={"limit": 2}).json()
    assert [model["id"] for model in first["items"]] == ids[:0:-1]
    rest = client.get("/v1/models", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [model["id"] for model in rest["items"]] == ids[:1]
    assert rest["next_cursor"] is None
    assert client.get("/v1/models", params={"state": "ready"}).json()["items"] == []


def test_delete(client: TestClient, ready_model: Model, problem: Any) -> None:
    path = f"/v1/models/{ready_model.id}"
    assert client.get(path).json()["operators"] == [["Conv", 2]]
    answer = client.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    for gone in (client.get(path), client.delete(path), client.get(f"{path}/tasks")):
        problem(gone, 410, "model-deleted")
    problem(client.get("/v1/models/mdl_nothing"), 404, "model-not-found")
    assert len(client.get("/v1/models", params={"state": "deleted"}).json()["items"]) == 1


def test_tasks(client: TestClient, services: Services, ready_model: Model, problem: Any) -> None:
    path = f"/v1/models/{ready_model.id}/tasks"
    assert client.get(path).json() == {"items": [], "next_cursor": None}
    args = [{"name": "x", "shape": [1, 3], "dtype": "float32"}]
    workload = Workload(key="w1", toolchain="t1", name="conv", flops=1e9, args=args, ir="{}")
    with services.uow.write() as repos:
        repos.workloads.add_many([workload])
        repos.models.set_tasks(ready_model.id, pipeline="cpu", toolchain="t1", tasks=[("w1", 3)])
    (task,) = client.get(path).json()["items"]
    assert (task["workload_key"], task["weight"], task["args"]) == ("w1", 3, args)
    assert client.get(path, params={"pipeline": "gpu"}).json()["items"] == []
    (listed,) = client.get("/v1/workloads/w1").json()["items"]
    assert listed == {"key": "w1", "toolchain": "t1", "name": "conv", "flops": 1e9, "args": args}
    problem(client.get("/v1/workloads/w2"), 404, "workload-not-found")


def test_a_models_parts_for_onnx_runtime_are_reach_the_client(client: TestClient, services: Services) -> None:
    part = RuntimePart(
        nodes=(8, 9),
        inputs=(OpenSpec(name="boxes", shape=(1, 64, 4), dtype="float32"),),
        outputs=(OpenSpec(name="kept", shape=(None, 4), dtype="float32"),),
        operators=(("Gather", 2), ("NonMaxSuppression", 1)),
        reasons=(NotCompiled(operator="NonMaxSuppression", node="'<nms>'", reason="is not supported"),),
    )
    with services.uow.write() as repos:
        model = repos.models.add(name="net", sha256="cd" * 32, size_bytes=9)
        repos.models.set_ready(
            model.id,
            inputs=[{"name": "x", "shape": [1, 3], "dtype": "float32"}],
            outputs=[part.outputs[0].to_json()],
            operators=[("Conv", 2)],
            opset=17,
            num_params=1000,
            parts=[part.to_json()],
        )
    answer = client.get(f"/v1/models/{model.id}").json()
    assert answer["outputs"][0]["shape"] == [None, 4]
    assert answer["parts"][0]["operators"] == [["Gather", 2], ["NonMaxSuppression", 1]]
    read = tunefarm.client.Model.read({**answer, "raw": answer})
    assert read.outputs[0].shape == (None, 4)
    assert read.summary()["outputs"] == "kept ?×4 float32"
    assert read.parts[0].reasons[0].node == "'<nms>'"


def test_tags_and_a_note_of_a_model(client: TestClient, ready_model: Model, problem: Any) -> None:
    path = f"/v1/models/{ready_model.id}"
    changed = client.patch(path, json={"tags": ["OCR"], "note": "for the scanner"}).json()
    assert (changed["tags"], changed["note"]) == (["ocr"], "for the scanner")
    assert client.get(path).json() == changed
    for query, expected in (
        ({"tag": "ocr"}, [ready_model.id]),
        ({"tag": "asr"}, []),
        ({"text": "SCANNER"}, [ready_model.id]),
        ({"text": "printer"}, []),
        ({"order": "size"}, [ready_model.id]),
    ):
        assert [model["id"] for model in client.get("/v1/models", params=query).json()["items"]] == expected
    problem(client.patch(path, json={"tags": ["two words"]}), 422, "invalid-tag")
    problem(client.patch(path, json={"name": "other"}), 422, "invalid-request")
    assert client.delete(path).status_code == 204
    problem(client.patch(path, json={"tags": []}), 410, "model-deleted")


def test_a_model_is_named_with_its_version(
    client: TestClient, services: Services, ready_model: Model, device: dict[str, Any], problem: Any
) -> None:
    assert device
    with services.uow.write() as repos:
        newer = repos.models.add(name=ready_model.name, sha256="e" * 64, size_bytes=1)
    assert (ready_model.version, newer.version) == (1, 2)
    name = quote(ready_model.name)
    assert client.get(f"/v1/models/{name}").json()["id"] == newer.id
    older = client.get(f"/v1/models/{name}@1").json()
    assert (older["id"], older["version"]) == (ready_model.id, 1)
    assert client.get(f"/v1/models/{name}@1/tasks").status_code == 200
    assert client.patch(f"/v1/models/{name}@1", json={"tags": ["old"]}).json()["id"] == ready_model.id
    job = client.post("/v1/jobs", json={"model_id": f"{ready_model.name}@1", "budget": {"trials": 8}}).json()
    assert job["model_id"] == ready_model.id
    listed = client.get("/v1/jobs", params={"model_id": f"{ready_model.name}@1"}).json()["items"]
    assert [item["id"] for item in listed] == [job["id"]]
    problem(client.get(f"/v1/models/{name}@3"), 404, "model-not-found")
    problem(client.get("/v1/models/none@1"), 404, "model-not-found")
    problem(
        client.post("/v1/jobs", json={"model_id": "none", "budget": {"trials": 8}}), 404, "model-not-found"
    )


def test_a_name_with_slashes_is_accepted_where_an_id_is(
    client: TestClient, services: Services, problem: Any
) -> None:
    with services.uow.write() as repos:
        models = [
            repos.models.add(name=name, sha256=f"{number:064x}", size_bytes=9)
            for number, name in enumerate(("team/net", "team/net", "team"), start=10)
        ]
    newest, plain = models[1].id, models[2].id
    for path, model_id in (
        ("team%2Fnet", newest),
        ("team%2fnet@2", newest),
        ("team%2Fnet@1", models[0].id),
        ("team", plain),
    ):
        answer = client.get(f"/v1/models/{path}")
        assert answer.status_code == 200, path
        assert answer.json()["id"] == model_id, path
    assert client.patch("/v1/models/team%2Fnet@1", json={"tags": ["old"]}).json()["id"] == models[0].id
    assert client.get("/v1/models/team%2Fnet@1/samples").json()["items"] == []
    problem(client.get("/v1/models/team%2Fother"), 404, "model-not-found")
    problem(client.get("/v1/models/team/net"), 404, "no-such-route")
    for path in ("team%00net", "team%00net/tasks", "%00", "team%2Fnet%00"):
        refused = problem(client.get(f"/v1/models/{path}"), 422, "invalid-request")
        assert "no NUL character" in refused["detail"], "it is no slash"
    with services.uow.write() as repos:
        repos.models.set_ready(newest, inputs=[], outputs=[], operators=[], opset=17, num_params=1)
    model = "/v1/models/team%2Fnet"
    assert client.get(f"{model}/tasks").json()["items"] == []
    assert client.post(f"{model}/samples", content=b"no npz").status_code == 422
    problem(client.get(f"{model}/samples/smp_none"), 404, "samples-not-found")
    problem(client.post(f"{model}/bind", json={"shapes": {"x": [0]}}), 422, "invalid-request")
    assert client.delete("/v1/models/team%2Fnet@2").status_code == 204
    assert client.get(model).json()["id"] == models[0].id
