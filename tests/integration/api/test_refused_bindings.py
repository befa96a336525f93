"""Shapes and values that do not fit a network: refused at the import, before any search, and mended without another upload."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_farm import farm_settings
from migrated_database import upgrade
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.tvm import TvmEngine
from tunefarm_app.runtime.composition import Services
from tunefarm_app.steps.run import run_steps
from tunefarm_db.values import StepKind

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2 than httpx; either serves here
    from starlette.testclient import TestClient

SIZES = "|".join(map(str, range(1, 10)))
CASES = [
    ({"shape": "z=1,4"}, "unknown-input", "'z'"),
    ({"shape": "x=1"}, "bad-shape", "'x'"),
    ({"shape": ["x=2,4", "y=3,4"]}, "bad-shape", "n"),
    ({"shape": [f"x=1,{SIZES}", f"y=1,{SIZES}"]}, "too-many-shapes", "81 combinations"),
    ({"shape": "x=1,4", "value": "rate=3"}, "unknown-input", "'rate'"),
    ({"shape": "x=1,4", "value": "step=1.5"}, "bad-value", "'step'"),
    ({"shape": "x=1,4", "value": "step=true"}, "bad-value", "'step'"),
    ({"shape": "x=1,4", "value": "step=256"}, "bad-value", "'step'"),
    ({"shape": "x=1,4", "value": "step=-1"}, "bad-value", "'step'"),
    ({"shape": "x=1,4", "value": "step=1,2"}, "bad-value", "'step'"),
]


def network() -> bytes:
    """Return a network of two inputs with a batch and each a width of its own, and a scalar of eight bits."""
    graph = GraphBuilder()
    x, y = graph.input("x", ["n", "wide"]), graph.input("y", ["n", "high"])
    step = graph.node("Cast", graph.input("step", [], TensorProto.UINT8), to=TensorProto.FLOAT)
    sums = [graph.node("ReduceSum", tensor, graph.ints(1), keepdims=1) for tensor in (x, y)]
    graph.output(graph.node("Mul", graph.node("Add", *sums), step), ["n", 1])
    data: bytes = graph.model().SerializeToString()
    return data


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Services]]:
    settings = farm_settings(tmp_path_factory.mktemp("farm"))
    upgrade(settings.database_url.get_secret_value())
    app = create_app(settings, reconcile=False)
    with TestClient(app, raise_server_exceptions=False) as client:
        services: Services = app.state.services
        client.headers["Authorization"] = f"Bearer {create_api_key(services, name='test')[1]}"
        engine = TvmEngine(settings)
        yield client, replace(services, engine=engine)
        engine.close()


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(("params", "code", "words"), CASES, ids=lambda value: str(value)[:40])
def test_what_does_not_fit_the_network(
    services: tuple[TestClient, Services], params: dict[str, Any], code: str, words: str
) -> None:
    client, farm = services
    model = client.post("/v1/models", params=params, content=network()).json()
    with farm.uow.read() as repos:
        step = repos.steps.find(StepKind.IMPORT, model["id"])
    assert step is not None
    run_steps(step.id, farm)
    failed = client.get(f"/v1/models/{model['id']}").json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", code), failed
    assert words in failed["error"]["message"]
    answer = client.post("/v1/jobs", json={"model_id": model["id"], "budget": {"trials": 1}})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    document = answer.json()
    assert (document["code"], document["error"]["code"]) == ("model-failed", code)
    assert words in document["detail"]
    assert client.get("/v1/jobs").json()["items"] == []
    store = Path(farm.settings.store_dir)
    assert len([path for path in store.rglob("*") if path.is_file()]) == 1, "the file is kept, to be bound"
    binding = {"shapes": ["x=1,4", "y=1,4"], "values": ["step=2"]}
    answer = client.post(f"/v1/models/{model['id']}/bind", json=binding)
    assert answer.status_code in (200, 202), answer.text
    bound = answer.json()
    assert answer.headers["location"] == f"/v1/models/{bound['id']}"
    assert (bound["shapes"], bound["values"]) == ({"x": [1, 4], "y": [1, 4]}, {"step": 2})
    assert client.get(f"/v1/models/{model['id']}").status_code == 410
    with farm.uow.read() as repos:
        step = repos.steps.find(StepKind.IMPORT, bound["id"])
    assert step is not None
    run_steps(step.id, farm)
    assert client.get(f"/v1/models/{bound['id']}").json()["state"] == "ready"
