"""An artifact runs shapes that it was not tuned for, by code for all sizes that has the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx_models import INT64, GraphBuilder, mlp, residual_net

import tunefarm_tuning
from tunefarm_tuning import Artifact, apply_history_best, import_model
from tunefarm_tuning.artifact.loader import ArtifactInputError, InferenceSession, TunedModel, load
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.testing.records import applicable_records

ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9)


def written(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


def expected(path: Path, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact, TunedModel]:
    """A network of 3 MB of weights, compiled for batches of 4."""
    folder = tmp_path_factory.mktemp("wide")
    path = written(mlp(batch="batch", features=(512, 1024, 256)), folder)
    model = import_model(path, shapes={"x": (4, 512)})
    artifact = tunefarm_tuning.compile(model, output=folder / "net", baseline=False)
    return path, artifact, load(artifact.path)


@pytest.mark.parametrize("batch", [1, 3, 4, 5, 64, 131])
def test_every_batch_runs(wide: tuple[Path, Artifact, TunedModel], batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 512)).astype(np.float32)
    (output,) = wide[2](x).values()
    np.testing.assert_allclose(output, expected(wide[0], {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_outputs_stay_when_other_calls_follow(wide: tuple[Path, Artifact, TunedModel]) -> None:
    x = np.random.default_rng(0).standard_normal((7, 512)).astype(np.float32)
    first = wide[2](x)["probs"]
    before = first.copy()
    wide[2](-x)
    np.testing.assert_array_equal(first, before)


def test_weights_are_stored_once(wide: tuple[Path, Artifact, TunedModel], tmp_path: Path) -> None:
    model = import_model(wide[0], shapes={"x": (4, 512)})
    alone = tunefarm_tuning.compile(model, output=tmp_path / "alone", baseline=False, other_shapes=False)
    assert alone.report["other_shapes"] == {"entry": None, "reason": "not asked for"}
    assert alone.manifest["format_version"] == 1
    sizes = [artifact.path.stat().st_size for artifact in (wide[1], alone)]
    assert sizes[0] < 1.1 * sizes[1]
    with pytest.raises(ArtifactInputError, match=r"has shape \[5, 512\]"):
        load(alone.path)(np.zeros((5, 512), np.float32))


def test_the_report_says_what_was_compared(wide: tuple[Path, Artifact, TunedModel]) -> None:
    _, artifact, loaded = wide
    others = artifact.report["other_shapes"]
    assert [item["inputs"]["x"] for item in others["compared"]] == [[4, 512], [5, 512], [3, 512]]
    assert others["latency_sec"] > 0
    assert artifact.manifest["format_version"] == 2
    assert loaded.other_shapes == {
        "inputs": {"x": ("batch", 512)},
        "dimensions": {"batch": {"multiple": 1, "least": None, "most": None}},
        "latency_sec": others["latency_sec"],
    }
    session = InferenceSession(artifact.path)
    assert session.get_inputs()[0].shape == ["batch", 512]
    assert session.get_outputs()[0].shape == ["probs_dim_0", 256]


def test_images_of_any_size_run_in_an_artifact_of_two_sizes(tmp_path: Path) -> None:
    network = residual_net(batch="n")
    for axis, name in ((2, "h"), (3, "w")):
        network.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    path = written(network, tmp_path)
    model = import_model(path, shapes={"image": "1,3,32|48,32"})
    with apply_history_best(applicable_records(model)):
        artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", limits=ANY_SPEED, baseline=False)
    loaded = load(artifact.path)
    assert [row["inputs"]["image"][2] for row in loaded.shapes] == [48, 32]
    for shape in ((1, 3, 32, 32), (1, 3, 48, 32), (2, 3, 35, 61), (1, 3, 8, 9)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        (output,) = loaded(x).values()
        np.testing.assert_allclose(output, expected(path, {"image": x})[0], rtol=1e-3, atol=1e-4)


def test_a_table_sets_the_most(tmp_path: Path) -> None:
    g = GraphBuilder()
    ids = g.input("ids", [1, "length"], INT64)
    length = g.node("Gather", g.node("Shape", ids), g.ints(1), axis=0)
    positions = g.node("Slice", g.weight(20, 8), g.ints(0), length, g.ints(0))
    g.output(g.node("Add", g.node("Gather", g.weight(50, 8), ids), positions, out="y"), [1, "length", 8])
    path = written(g.model(), tmp_path)
    artifact = tunefarm_tuning.compile(
        import_model(path, shapes={"ids": (1, 6)}), output=tmp_path / "net", baseline=False
    )
    loaded = load(artifact.path)
    x = np.arange(20, dtype=np.int64).reshape(1, 20)
    np.testing.assert_allclose(loaded(x)["y"], expected(path, {"ids": x})[0], rtol=1e-6)
    with pytest.raises(ArtifactInputError, match="at most 20"):
        loaded(np.zeros((1, 21), np.int64))


def test_wrong_code_for_all_sizes_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(mlp(batch="batch"), tmp_path)
    (tmp_path / "other").mkdir()
    other = import_model(written(mlp(batch="batch", seed=1), tmp_path / "other"), shapes={"x": (2, 32)})
    build = CompileSession.build_model

    def with_other_weights(
        self: CompileSession, *args: Any, other_shapes: bool = False, **options: Any
    ) -> None:
        if not other_shapes:
            build(self, *args, **options)
            return
        session = CompileSession(other, self._target, tmp_path, CompileLimits())
        build(session, *args, other_shapes=True, **options)
        session.close()

    monkeypatch.setattr(CompileSession, "build_model", with_other_weights)
    model = import_model(path, shapes={"x": (2, 32)})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False)
    assert artifact.report["other_shapes"]["entry"] is None
    assert "its results are wrong with the shapes x [2, 32]" in artifact.report["other_shapes"]["reason"]
    assert load(artifact.path).other_shapes is None


def test_why_there_is_no_code_for_all_sizes(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [1, "n"])
    total = g.node("ReduceSum", g.node("EyeLike", x), keepdims=0)
    g.output(g.node("Mul", x, total, out="y"), [1, "n"])
    artifact = tunefarm_tuning.compile(
        import_model(written(g.model(), tmp_path), shapes={"x": (1, 6)}),
        output=tmp_path / "net",
        baseline=False,
    )
    assert artifact.report["other_shapes"]["entry"] is None
    assert "EyeLike" in artifact.report["other_shapes"]["reason"]
    assert artifact.manifest["format_version"] == 1


def test_a_file_of_fixed_shapes_has_none(tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(
        import_model(written(mlp(), tmp_path)), output=tmp_path / "net", baseline=False
    )
    assert artifact.report["other_shapes"] is None
