"""An artifact runs shapes that it was not tuned for, by code for all sizes that has the same weights."""

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
from onnx_models import INT64, GraphBuilder, mlp

import tunefarm_tuning
from tunefarm_tuning import Artifact, apply_history_best, import_model
from tunefarm_tuning.artifact.loader import ArtifactInputError, InferenceSession, TunedModel, load
from tunefarm_tuning.artifact.reading import extract_library
from tunefarm_tuning.compiler import request
from tunefarm_tuning.compiler.phases import other_shapes
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.spans import recording
from tunefarm_tuning.testing.records import applicable_records

ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


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


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("batch", [1, 3, 4, 5, 64, 131])
def test_every_batch_runs(wide: tuple[Path, Artifact, TunedModel], batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 512)).astype(np.float32)
    (output,) = wide[2](x).values()
    np.testing.assert_allclose(output, expected(wide[0], {"x": x})[0], rtol=1e-4, atol=1e-6)


def recogniser() -> onnx.ModelProto:
    """A text recogniser: open in the height of its lines, too, but it fits one height alone."""
    g = GraphBuilder()
    x = g.input("x", ["batch", 3, "height", "width"])
    pooled = g.node("AveragePool", g.conv(x, 3, 8), kernel_shape=[4, 1], strides=[4, 1])
    columns = g.node("Reshape", x, g.ints(0, 12, 1, -1))
    g.output(g.node("Concat", pooled, columns, axis=1), ["batch", 20, "rows", "width"])
    return g.model()


@pytest.mark.exhaustive
@pytest.mark.parametrize("shapes", ["1,3,4,16|24", "1,3,4,16"])
def test_a_dimension_that_fits_one_size_keeps_it(shapes: str, tmp_path: Path) -> None:
    path = written(recogniser(), tmp_path)
    model = import_model(path, shapes={"x": shapes})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False)
    (entry,) = artifact.report["other_shapes"]["inputs"]
    assert entry["shape"] == ["batch", 3, 4, "width"]
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 37)).astype(np.float32)
    np.testing.assert_allclose(
        load(artifact.path)(x).popitem()[1], expected(path, {"x": x})[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("keeps_bytes", "loads"), [(1 << 20, 1), (0, 2)])
def test_the_compiler_that_has_the_network_is_kept_for_a_small_one(
    keeps_bytes: int, loads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "_KEEPS_UP_TO_BYTES", keeps_bytes)
    model = import_model(written(mlp(batch="batch", features=(16, 8)), tmp_path), shapes={"x": (4, 16)})
    with recording() as log:
        artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False)
    assert artifact.report["other_shapes"]["entry"]
    assert [noted.name for noted in log.spans].count("compile: load") == loads


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
    assert [item["inputs"]["x"] for item in others["compared"]] == [[4, 512], [5, 512], [3, 512], [1, 512]]
    assert others["latency_sec"] > 0
    assert artifact.manifest["format_version"] == 2
    assert loaded.other_shapes == {
        "inputs": {"x": ("batch", 512)},
        "dimensions": {"batch": {"multiple": 1, "least": None, "most": None}},
        "conditions": [],
        "latency_sec": others["latency_sec"],
    }
    session = InferenceSession(artifact.path)
    assert session.get_inputs()[0].shape == ["batch", 512]
    assert session.get_outputs()[0].shape == ["probs_dim_0", 256]


def image_net() -> onnx.ModelProto:
    """A convolution, a pool and a matrix product, for images of any size."""
    g = GraphBuilder()
    x = g.node("Relu", g.conv(g.input("image", ["n", 3, "h", "w"]), 3, 8, stride=2))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    g.output(g.node("Gemm", x, g.weight(8, 5), out="logits"), ["n", 5])
    return g.model()


@pytest.mark.exhaustive
def test_images_of_any_size_run_in_an_artifact_of_two_sizes(tmp_path: Path) -> None:
    path = written(image_net(), tmp_path)
    model = import_model(path, shapes={"image": "1,3,16|24,16"})
    with apply_history_best(applicable_records(model)):
        artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", limits=ANY_SPEED, baseline=False)
    loaded = load(artifact.path)
    assert [row["inputs"]["image"][2] for row in loaded.shapes] == [24, 16]
    for shape in ((1, 3, 16, 16), (1, 3, 24, 16), (2, 3, 35, 61), (1, 3, 8, 9)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        (output,) = loaded(x).values()
        np.testing.assert_allclose(output, expected(path, {"image": x})[0], rtol=1e-3, atol=1e-4)


CALLS = """
import json, sys
import numpy as np
from tunefarm_tuning.artifact.loader import ArtifactInputError, load

model, results = load(sys.argv[1]), {}
for n in range(1, 8):
    for t in range(1, 8):
        x = np.arange(n * t, dtype=np.float32).reshape(n, t)
        try:
            results[f"{n},{t}"] = model(x)["y"].tolist()
        except ArtifactInputError as error:
            results[f"{n},{t}"] = str(error)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    """A network that takes any number of rows and columns whose product is a multiple of 4."""
    folder = tmp_path_factory.mktemp("rows")
    g = GraphBuilder()
    x = g.node("Reshape", g.input("x", ["n", "t"]), g.ints(-1, 4))
    g.output(g.node("MatMul", x, g.weight(4, 8), out="y"), ["rows", 8])
    path = written(g.model(), folder)
    model = import_model(path, shapes={"x": (2, 8)})
    return path, tunefarm_tuning.compile(model, output=folder / "net", baseline=False)


@pytest.mark.exhaustive
def test_sizes_whose_product_does_not_fit_are_refused(rows: tuple[Path, Artifact]) -> None:
    path, artifact = rows
    child = subprocess.run(
        [sys.executable, "-c", CALLS, str(artifact.path)], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, (child.returncode, child.stderr)
    for sizes, result in json.loads(child.stdout).items():
        n, t = map(int, sizes.split(","))
        if n * t % 4:
            assert result == (
                f"with the dimensions 'n' = {n}, 't' = {t}, n * t is {n * t}, but n * t has to be a multiple of 4 "
                "for node 'reshape0_node' (Reshape)"
            )
        else:
            x = np.arange(n * t, dtype=np.float32).reshape(n, t)
            np.testing.assert_allclose(result, expected(path, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_conditions_are_listed_and_odd_sizes_compared(rows: tuple[Path, Artifact]) -> None:
    artifact = rows[1]
    assert [item["inputs"]["x"] for item in artifact.report["other_shapes"]["compared"]] == [
        [2, 8], [3, 8], [2, 6], [3, 4], [2, 2], [2, 66],
    ]  # fmt: skip
    others = load(artifact.path).other_shapes
    assert others is not None
    assert others["conditions"] == ["n * t has to be a multiple of 4"]


@pytest.mark.exhaustive
def test_compiled_code_refuses_sizes_itself(rows: tuple[Path, Artifact], tmp_path: Path) -> None:
    """As a C++ program calls it, without the loader's checks."""
    extract_library(rows[1].path, tmp_path / "lib.so")
    call = """
import sys
import numpy as np, tvm
from tvm import relax

main = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())[sys.argv[2]]
print(main(tvm.runtime.tensor(np.ones((2, 6), np.float32))).numpy().shape)
for shape in ((1, 3), (3, 5)):
    try:
        main(tvm.runtime.tensor(np.ones(shape, np.float32)))
    except Exception as error:
        print("refused")
"""
    entry = rows[1].report["other_shapes"]["entry"]
    child = subprocess.run(
        [sys.executable, "-c", call, str(tmp_path / "lib.so"), entry],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout.split("\n")) == (0, ["(3, 8)", "refused", "refused", ""]), (
        child.stderr
    )


@pytest.mark.exhaustive
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
    path = written(mlp(batch="batch", features=(8, 4)), tmp_path)
    (tmp_path / "other").mkdir()
    other = import_model(
        written(mlp(batch="batch", features=(8, 4), seed=1), tmp_path / "other"), shapes={"x": (2, 8)}
    )
    build = CompileSession.build_model

    def with_other_weights(
        self: CompileSession, *args: Any, other_shapes: bool = False, **options: Any
    ) -> None:
        if not other_shapes:
            build(self, *args, **options)
            return
        session = CompileSession(other, self._target, self._folder, CompileLimits())
        build(session, *args, other_shapes=True, **options)
        session.close()

    monkeypatch.setattr(CompileSession, "build_model", with_other_weights)
    model = import_model(path, shapes={"x": (2, 8)})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False)
    assert artifact.report["other_shapes"]["entry"] is None
    assert "its results are wrong with the shapes x [2, 8]" in artifact.report["other_shapes"]["reason"]
    assert load(artifact.path).other_shapes is None


@pytest.mark.exhaustive
def test_code_that_takes_too_long_to_build_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_shapes, "_build_sec", lambda _request: 0.001)
    model = import_model(written(mlp(batch="batch", features=(8, 4)), tmp_path), shapes={"x": (2, 8)})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False)
    assert "0.001 s" in artifact.report["other_shapes"]["reason"]
    (y,) = load(artifact.path)(np.ones((2, 8), np.float32)).values()
    assert y.shape == (2, 4)


@pytest.mark.exhaustive
def test_a_job_whose_time_is_spent_builds_no_code_for_all_sizes(tmp_path: Path) -> None:
    model = import_model(written(mlp(batch="batch", features=(8, 4)), tmp_path), shapes={"x": (2, 8)})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False, goal_sec=1.0)
    assert "a larger budget leaves time for it" in artifact.report["other_shapes"]["reason"]
    assert "other-shapes" not in artifact.report["phases_sec"]
    (y,) = load(artifact.path)(np.ones((2, 8), np.float32)).values()
    assert y.shape == (2, 4)


@pytest.mark.exhaustive
def test_the_build_of_code_for_all_sizes_ends_with_the_time_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with some seconds left, and is ended when they are over."""
    monkeypatch.setattr(other_shapes, "_LEAST_OPTIONAL_SEC", -1.0)
    model = import_model(written(mlp(batch="batch", features=(8, 4)), tmp_path), shapes={"x": (2, 8)})
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net", baseline=False, goal_sec=1.0)
    assert "a larger budget leaves time for it" in artifact.report["other_shapes"]["reason"]
    assert artifact.report["phases_sec"]["other-shapes"] < 60.0


@pytest.mark.exhaustive
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
    (warning,) = artifact.report["warnings"]
    assert "EyeLike" in warning
    assert artifact.manifest["format_version"] == 1


@pytest.mark.exhaustive
def test_a_file_of_fixed_shapes_has_none(tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(
        import_model(written(mlp(), tmp_path)), output=tmp_path / "net", baseline=False
    )
    assert artifact.report["other_shapes"] is None
