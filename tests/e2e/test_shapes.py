"""One artifact for several shapes, from the upload to the calls, in a farm that compiles and measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import GraphBuilder

from tunefarm import load
from tunefarm.client import Client
from tunefarm.embedded import EmbeddedFarm, FarmOptions
from tunefarm_tuning.artifact.loader import ArtifactInputError

SHAPES = {"x": "1..2,3,16,16:3|32@2"}
SETS = [[2, 3, 16, 16], [2, 3, 16, 32]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    options = FarmOptions(settings={"ROUND_SIZE": "4"})
    with EmbeddedFarm(tmp_path_factory.mktemp("farm") / "home", options) as farm:
        farm.wait_ready()
        with Client(farm.url, farm.api_key) as client:
            yield client


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = GraphBuilder()
    x = graph.conv(
        graph.input("x", ["batch", 3, "height", "width"]), 3, 8, stride=2
    )  # too coarse for Winograd
    graph.node("ReduceMean", graph.node("Relu", x), axes=[2, 3], keepdims=0, out="y")
    graph.output("y", ["batch", 8])
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(graph.model(), path)
    return path


@pytest.mark.exhaustive  # test_command.py goes the same way with several batch sizes
def test_a_job_for_several_shapes(client: Client, network: Path, tmp_path: Path) -> None:
    job = client.tune(network, shapes=SHAPES, trials=4, progress_bar=False)
    assert job.wait().state == "succeeded"
    imported = client.models.get(job.job.model_id)
    assert [list(item.inputs[0].shape) for item in imported.specialisations] == SETS
    files = job.download(tmp_path)
    report = json.loads(files.report.read_text())
    assert [(part["inputs"][0]["shape"], part["weight"]) for part in report["shapes"]] == [
        (shape, weight) for shape, weight in zip(SETS, (3, 1), strict=True)
    ]
    assert all(part["tuned_sec"] > 0 and part["batches"] == [1] for part in report["shapes"])
    assert report["other_shapes"]["reason"] is None
    assert len(report["other_shapes"]["compared"]) > 1

    model = load(files.artifact)
    assert [row["inputs"]["x"] for row in model.shapes] == [tuple(shape) for shape in SETS]
    assert [row["batches"] for row in model.shapes] == [(1,), (1,)]
    assert all(row["latency_sec"] > 0 for row in model.shapes)
    assert model.other_shapes is not None
    reference = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    for shape in (*SETS, [1, 3, 16, 16], [1, 3, 16, 32], [5, 3, 16, 16], [1, 3, 21, 40]):
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        (expected,) = reference.run(["y"], {"x": x})
        np.testing.assert_allclose(model(x)["y"], expected, rtol=1e-4, atol=1e-5, err_msg=str(shape))
    with pytest.raises(ArtifactInputError, match="the model takes 3"):
        model(np.zeros((1, 4, 16, 16), np.float32))


@pytest.mark.exhaustive  # the option's way to the compiler: tests/unit/app/steps/test_whole_job.py
def test_a_job_without_the_code_for_other_shapes(client: Client, network: Path, tmp_path: Path) -> None:
    job = client.tune(network, shapes=SHAPES, trials=1, other_shapes=False, progress_bar=False)
    assert job.wait().state == "succeeded"
    files = job.download(tmp_path)
    others = json.loads(files.report.read_text())["other_shapes"]
    assert (others["reason"], others["dimensions"]) == ("not asked for", [])
    model = load(files.artifact)
    assert model.other_shapes is None
    assert model(np.zeros((1, 3, 16, 32), np.float32))["y"].shape == (1, 8)
    with pytest.raises(ArtifactInputError, match=r"The nearest is 'x' \[2, 3, 16, 16\]"):
        model(np.zeros((5, 3, 16, 16), np.float32))
