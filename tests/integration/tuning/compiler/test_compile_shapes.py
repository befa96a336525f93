"""One artifact for several sets of shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder, mlp

import tunefarm_tuning
from tunefarm_tuning import Artifact, apply_history_best, extract_tasks, import_model, verify
from tunefarm_tuning.artifact.loader import ArtifactInputError, InferenceSession, TunedModel, load
from tunefarm_tuning.compiler.model_timing import SideBySide
from tunefarm_tuning.compiler.phases import measure
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.testing.records import applicable_records
from tunefarm_tuning.workload.model import Model

ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
WIDTH = 48


def written(model: onnx.ModelProto, folder: Path, name: str = "net") -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def expected(path: Path, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, Artifact]:
    """A network with batches of 1, 4 and 8, with a tuned kernel for each task."""
    folder = tmp_path_factory.mktemp("shapes")
    path = written(mlp(batch="batch", features=(WIDTH, 64, 10)), folder)
    model = import_model(path, shapes={"x": f"1..8,{WIDTH}@1,4,8"})
    with apply_history_best(applicable_records(model)):
        artifact = tunefarm_tuning.compile(
            model, "host", output=folder / "net", limits=ANY_SPEED, baseline=False, other_shapes=False
        )
    return path, model, artifact


@pytest.fixture(scope="module")
def tuned(network: tuple[Path, Model, Artifact]) -> TunedModel:
    return load(network[2].path)


def samples(count: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def test_the_model_lists_its_sets_of_shapes(network: tuple[Path, Model, Artifact]) -> None:
    _, model, _ = network
    assert [item.inputs[0].shape for item in model.specialisations] == [(8, WIDTH), (1, WIDTH), (4, WIDTH)]
    assert [item.outputs[0].shape for item in model.specialisations] == [(8, 10), (1, 10), (4, 10)]
    assert model.inputs == model.specialisations[0].inputs
    assert Model.from_json(json.loads(json.dumps(model.to_json())), model.path) == model


@pytest.mark.parametrize("count", range(1, 9))
def test_every_batch_of_the_range_runs(
    network: tuple[Path, Model, Artifact], tuned: TunedModel, count: int
) -> None:
    x = samples(count)
    (output,) = tuned(x).values()
    assert output.shape == (count, 10)
    np.testing.assert_allclose(output, expected(network[0], {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_other_shapes_are_refused_with_the_nearest(tuned: TunedModel) -> None:
    for shape in ((9, WIDTH), (1, WIDTH + 1), (WIDTH,)):
        with pytest.raises(ArtifactInputError, match=r"The nearest is 'x' \[\d") as raised:
            tuned(np.zeros(shape, np.float32))
        assert f"'x' [8, {WIDTH}] (also batch 5, 6, 7)" in str(raised.value)


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 13, 40])
def test_any_number_of_samples_runs_in_batches(
    network: tuple[Path, Model, Artifact], tuned: TunedModel, count: int
) -> None:
    data = samples(count, seed=count)
    wanted = expected(network[0], {"x": data})[0] if count else np.zeros((0, 10), np.float32)
    for batch in (data, {"x": data}, iter(data)):
        (output,) = tuned.batched(batch).values()
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-6)


def test_lists_and_other_arrays_find_their_shape(tuned: TunedModel) -> None:
    x = samples(4)
    wanted = tuned(x)["probs"]
    np.testing.assert_array_equal(tuned(np.asfortranarray(x))["probs"], wanted)
    with pytest.raises(ArtifactInputError, match="float64"):
        tuned(x.tolist())
    with pytest.raises(ArtifactInputError, match="not an array"):
        tuned([[1.0], [1.0, 2.0]])


def test_what_the_artifact_says_of_its_shapes(
    network: tuple[Path, Model, Artifact], tuned: TunedModel
) -> None:
    _, model, artifact = network
    assert artifact.manifest["format_version"] == 2
    rows = {row["inputs"]["x"][0]: row for row in tuned.shapes}
    assert {size: row["batches"] for size, row in rows.items()} == {8: (5, 6, 7), 1: (), 4: (2, 3)}
    assert all(row["latency_sec"] > 0 for row in rows.values())
    shapes = artifact.report["shapes"]
    assert [shape["checks"]["ok"] for shape in shapes] == [True] * 3
    assert [shape["batches_tried"] for shape in shapes] == [[5, 6, 7], [], [2, 3]]
    assert artifact.report["coverage"]["covered"] == len(
        [task for task in extract_tasks(model) if task.alternative is None]
    )
    assert verify(artifact.path, model).ok


def test_the_session_shows_an_open_dimension(network: tuple[Path, Model, Artifact]) -> None:
    session = InferenceSession(network[2].path)
    (x,), (probs,) = session.get_inputs(), session.get_outputs()
    assert [type(dim) for dim in x.shape] == [str, int]
    assert probs.shape[1] == 10
    assert session.run(None, {"x": samples(3)})[0].shape == (3, 10)


@pytest.mark.exhaustive
def test_the_artifact_lists_and_times_its_shapes_from_the_shell(
    network: tuple[Path, Model, Artifact],
) -> None:
    def run(*arguments: str) -> list[str]:
        command = [sys.executable, str(network[2].path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assert run("--shapes")[0].startswith(f"x [8, {WIDTH}], also batch 5, 6, 7: ")
    assert [line.partition(":")[0] for line in run("--time", "2")] == [
        f"x [{size}, {WIDTH}]" for size in (8, 1, 4)
    ]


@pytest.mark.exhaustive
def test_a_model_in_other_shapes_is_another_model(network: tuple[Path, Model, Artifact]) -> None:
    path, _, artifact = network
    with pytest.raises(InvalidInputError, match="not imported") as raised:
        verify(artifact.path, import_model(path, shapes={"x": (1, WIDTH)}))
    assert raised.value.code == "other-model"


def mixing() -> onnx.ModelProto:
    """Subtract the mean over the batch."""
    graph = GraphBuilder()
    x = graph.input("x", ["n", 6])
    graph.node("Sub", x, graph.node("ReduceMean", x, axes=[0], keepdims=1), out="y")
    graph.output("y", ["n", 6])
    return graph.model()


def counting() -> onnx.ModelProto:
    """Multiply by the number of samples."""
    graph = GraphBuilder()
    x = graph.input("x", ["n", 6])
    count = graph.node("Gather", graph.node("Shape", x), graph.constant(np.array(0, np.int64)))
    graph.node("Mul", x, graph.node("Cast", count, to=TensorProto.FLOAT), out="y")
    graph.output("y", ["n", 6])
    return graph.model()


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("build", [mixing, counting])
def test_samples_that_depend_on_the_batch_are_never_filled_up(tmp_path: Path, build: Any) -> None:
    path = written(build(), tmp_path)
    model = import_model(path, shapes={"x": "1..4,6@2,4"})
    artifact = tunefarm_tuning.compile(
        model, "host", output=tmp_path / "net", baseline=False, other_shapes=False
    )
    assert [shape["batches"] for shape in artifact.report["shapes"]] == [[], []]
    assert all("output 'y'" in shape["no_batches"] for shape in artifact.report["shapes"])
    tuned = load(artifact.path)
    for count in (2, 4):
        x = np.random.default_rng(count).standard_normal((count, 6)).astype(np.float32)
        np.testing.assert_allclose(tuned(x)["y"], expected(path, {"x": x})[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ArtifactInputError, match="nearest"):
        tuned(np.zeros((3, 6), np.float32))


@pytest.mark.exhaustive
def test_a_slow_set_of_shapes_falls_back_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(mlp(batch="batch", features=(16, 16)), tmp_path)
    model = import_model(path, shapes={"x": "2|4,16"})
    real = measure.compare_latency

    def compare_latency(networks: SideBySide, **options: Any) -> Any:
        latency, _ = real(networks, **options)
        return latency, networks.entry == "main_1"

    monkeypatch.setattr(measure, "compare_latency", compare_latency)
    with apply_history_best(applicable_records(model)) as history:
        artifact = tunefarm_tuning.compile(
            model, "host", output=tmp_path / "net", limits=ANY_SPEED, baseline=False
        )
    first, second = artifact.report["shapes"]
    assert first["fallback"] is None
    assert "network" in second["fallback"], "by its times, or as it was said to be slow"
    assert second["latency"]["tuned"] == second["latency"]["untuned"]
    reasons = {miss.reason for miss in history.coverage.misses}
    assert reasons == {"slower-than-untuned"}
    assert history.coverage.hits
    assert any("with the shapes x [2, 16]" in warning for warning in artifact.report["warnings"])
    tuned = load(artifact.path)
    for count in (2, 3, 4):
        x = np.random.default_rng(count).standard_normal((count, 16)).astype(np.float32)
        np.testing.assert_allclose(tuned(x)["probs"], expected(path, {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_shapes_that_the_network_does_not_take(tmp_path: Path) -> None:
    graph = GraphBuilder()
    x = graph.input("x", ["n", "width"])
    graph.node("Reshape", x, graph.ints(-1, 8), out="y")
    graph.output("y", ["m", 8])
    path = written(graph.model(), tmp_path)
    with pytest.raises(InvalidModelError):
        import_model(path, shapes={"x": "1,8|12"})
    with pytest.raises(InvalidInputError) as raised:
        import_model(path, shapes={"x": "1..65,8@" + ",".join(map(str, range(1, 66)))})
    assert raised.value.code == "too-many-shapes"
