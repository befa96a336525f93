"""Networks that are compiled in part: import, compile, run, and what is said of them."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hybrid_models import (
    between_products,
    contributed,
    counted_loop,
    detector,
    endless_loop,
    nobody_knows,
    nothing_to_tune,
    random_numbers,
    rounded_before_a_part,
    sequence_output,
    strings_inside,
)
from onnx import numpy_helper

import tunefarm_tuning
from tunefarm_tuning import Artifact, Model, evaluate, extract_tasks, import_model, verify
from tunefarm_tuning.artifact.loader import ArtifactError, InferenceSession, load
from tunefarm_tuning.compiler.artifact_comparison import compare_packed
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.onnx_runtime import Reference
from tunefarm_tuning.testing.local_rpc import local_rpc


def imported(network: Callable[[], onnx.ModelProto], folder: Path) -> Model:
    return import_model(_saved(network, folder))


def _saved(network: Callable[[], onnx.ModelProto], folder: Path) -> Path:
    path = folder / f"{network.__name__}.onnx"
    onnx.save(network(), path)
    return path


def expected_of(model: Model, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def inputs_of(model: Model, seed: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {spec.name: rng.standard_normal(spec.shape, "f4") for spec in model.inputs}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hybrid")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return imported(detector, folder)


@pytest.fixture(scope="module")
def artifact(model: Model, folder: Path) -> Artifact:
    return tunefarm_tuning.compile(model, output=folder / "detector.tunefarm")


def test_the_import_says_what_onnx_runtime_runs(model: Model) -> None:
    (part,) = model.parts
    assert [reason.node for reason in part.reasons] == ["'nms'"]
    assert {spec.name: spec.shape for spec in model.outputs} == {
        "kept": (1, None, 4),
        "label": (1, 5),
        "selected": (None, 3),
    }
    assert Model.from_json(model.to_json(), model.path) == model
    assert any("conv2d" in task.workload.name for task in extract_tasks(model, "llvm"))


def test_it_is_refused_where_it_must_be_compiled_whole(model: Model) -> None:
    with pytest.raises(InvalidModelError, match="NonMaxSuppression") as caught:
        import_model(model.path, hybrid=False)
    assert caught.value.code == "unsupported-operator"


def test_the_artifact_returns_what_onnx_runtime_does(model: Model, artifact: Artifact) -> None:
    tuned = load(artifact.path)
    assert tuned.outputs[0]["shape"] == [1, None, 4]
    sizes = set()
    for seed in range(4):
        inputs = inputs_of(model, seed)
        outputs = tuned.run(inputs)
        for (name, array), expected in zip(outputs.items(), expected_of(model, inputs), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5, err_msg=name)
        sizes.add(outputs["selected"].shape)
    assert len(sizes) > 1, "the number of boxes depends on the image"
    assert len(tuned.time(repeat=2, number=1)) == 2
    session = InferenceSession(artifact.path)
    assert next((out.name, out.shape) for out in session.get_outputs()) == ("kept", [1, None, 4])
    with pytest.raises(ValueError, match="the size of an output depends on values"):
        tuned.batched(np.zeros((3, 3, 16, 16), "f4"))


def test_the_report_says_where_the_time_is(model: Model, artifact: Artifact) -> None:
    hybrid = artifact.report["hybrid"]
    (part,) = hybrid["parts"]
    assert part["file"] == "part_1.onnx"
    assert part["nodes"] == 4
    assert 0 < part["share"] < 1
    assert hybrid["onnxruntime_share"] == pytest.approx(part["share"])
    assert hybrid["not_timed"] is None
    assert any("ONNX Runtime runs 4 of" in warning for warning in artifact.report["warnings"])
    names = {output["name"] for s in artifact.report["checks"]["input_sets"] for output in s["outputs"]}
    assert {"kept", "label", "selected", "input 1 of ONNX Runtime's part 1"} <= names
    assert artifact.manifest["format_version"] == 2
    assert artifact.manifest["parts"][0]["inputs"][0]["name"] == "boxes"
    assert verify(artifact.path, model).ok
    assert evaluate(artifact.path, repeat=2).median_sec > 0


def test_what_a_part_takes_may_be_as_far_off_as_rounding_moves_it(tmp_path: Path) -> None:
    model = imported(rounded_before_a_part, tmp_path)
    reference = Reference(model, tmp_path, threads=1, memory_bytes=8 << 30, timeout_sec=120.0)
    (input_set, *_) = reference.make(0)
    reference.close()
    w1, w1b = (
        numpy_helper.to_array(tensor).astype("f8") for tensor in onnx.load(model.path).graph.initializer[:2]
    )
    x = load_arrays(input_set.inputs)[0].astype("f8")
    exact = (x @ w1 - x @ w1b).astype("f4")
    taken = load_arrays(input_set.parts[0].inputs)[0]
    assert not compare_arrays("a", exact, taken).ok, "the fixed shares are too small"
    tunefarm_tuning.compile(model, output=tmp_path / "rounded.tunefarm", baseline=False)


def test_it_runs_from_the_file_alone_and_in_forked_processes(artifact: Artifact, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3, 16, 16), "f4"))
    command = [
        sys.executable,
        str(artifact.path),
        "--input",
        "x.npy",
        "--output-dir",
        "out",
        "--threads",
        "2",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    assert "kept: float32 [1, " in done.stdout
    alone = load(artifact.path, threads=2)
    x = np.ones((1, 3, 16, 16), "f4")
    here = alone(x)["kept"]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        there = pool.apply_async(_in_a_child, (artifact.path,)).get(60)
    np.testing.assert_array_equal(here, there)


def _in_a_child(path: Path) -> Any:
    return load(path, threads=2)(np.ones((1, 3, 16, 16), "f4"))["kept"]


def test_without_onnx_runtime_the_loader_says_what_to_install(artifact: Artifact, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "onnxruntime.py").write_text("raise ImportError('not here')")
    code = "import sys; sys.path[:0] = sys.argv[1:3]; from loader import load; load(sys.argv[2])"
    command = [sys.executable, "-c", code, str(blocked), str(artifact.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "pip install onnxruntime" in done.stderr


def test_a_damaged_part_is_found(artifact: Artifact, tmp_path: Path) -> None:
    copy = tmp_path / "damaged.tunefarm"
    shutil.copy(artifact.path, copy)
    data = bytearray(copy.read_bytes())
    start = data.find(b"NonMaxSuppression", data.find(b"part_1.onnx"))
    data[start] ^= 1
    copy.write_bytes(data)
    with pytest.raises(ArtifactError) as caught:
        load(copy)
    assert caught.value.code == "damaged-artifact"


def test_a_wrong_value_before_a_part_is_found_though_the_part_hides_it(
    model: Model, artifact: Artifact, tmp_path: Path
) -> None:
    reference = Reference(model, tmp_path, threads=1, memory_bytes=8 << 30, timeout_sec=120.0)
    sets = reference.make(0)
    reference.close()
    limits, cancellation = CompileLimits(), Cancellation()
    assert compare_packed(artifact.path, sets, limits, cancellation).ok
    given = load_arrays(sets[0].parts[0].inputs)
    given[1] = given[1] * np.float32(1.01)  # the scores are compared, whatever the part makes of them
    save_arrays(sets[0].parts[0].inputs, given)
    comparison = compare_packed(artifact.path, sets, limits, cancellation)
    assert not comparison.ok
    assert "input 2 of ONNX Runtime's part 1" in comparison.message


@pytest.mark.exhaustive
@pytest.mark.parametrize("network", [between_products, endless_loop, contributed, strings_inside])
def test_other_parts(network: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    model = imported(network, tmp_path)
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net.tunefarm", baseline=False)
    inputs = inputs_of(model)
    (output,) = load(artifact.path).run(inputs).values()
    np.testing.assert_allclose(output, expected_of(model, inputs)[0], rtol=1e-3, atol=1e-2)


@pytest.mark.exhaustive
def test_a_loop_whose_number_of_steps_is_an_input_makes_as_many_as_the_caller_says(tmp_path: Path) -> None:
    model = imported(counted_loop, tmp_path)
    assert model.parts[0].operators[0] == ("Loop", 1)
    artifact = tunefarm_tuning.compile(model, output=tmp_path / "net.tunefarm", baseline=False)
    tuned, x = load(artifact.path), np.ones((2, 7), "f4")
    for steps in (4, 0, 1):
        inputs = {"x": x, "steps": np.array(steps)}
        outputs = tuned.run(inputs)
        assert outputs["rows"].shape == (steps, 2, 5)
        for output, expected in zip(outputs.values(), expected_of(model, inputs), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_random_numbers_differ_in_every_run_and_the_rest_is_compared(tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(
        imported(random_numbers, tmp_path), output=tmp_path / "net.tunefarm", baseline=False
    )
    tuned, x = load(artifact.path), np.ones((2, 7), "f4")
    assert np.abs(tuned(x)["y"] - tuned(x)["y"]).max() > 0
    assert any("its results are random" in warning for warning in artifact.report["warnings"])
    names = {output["name"] for s in artifact.report["checks"]["input_sets"] for output in s["outputs"]}
    assert names == {"y", "input 1 of ONNX Runtime's part 1"} or names == {"y"}


def test_threads_run_an_artifact_at_once(model: Model, artifact: Artifact) -> None:
    tuned = load(artifact.path)
    data = [inputs_of(model, seed) for seed in range(8)]
    expected = [tuned.run(inputs)["selected"] for inputs in data]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for outputs, selected in zip(pool.map(tuned.run, data), expected, strict=True):
                np.testing.assert_array_equal(outputs["selected"], selected)


def test_a_network_that_onnx_runtime_cannot_run_either_names_both_reasons(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidModelError, match=r"my\.company\.Mystery .* ONNX Runtime, which might run it"
    ) as caught:
        imported(nobody_knows, tmp_path)
    assert caught.value.code == "unsupported-operator"


def test_networks_that_stay_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"^run the network in ONNX Runtime: tuning .*NonZero"):
        imported(nothing_to_tune, tmp_path)
    with pytest.raises(InvalidModelError, match="output 'y' is a sequence") as caught:
        imported(sequence_output, tmp_path)
    assert caught.value.code == "unsupported-dtype"
    with pytest.raises(
        InvalidModelError, match=r"Loop .* always makes that many steps\).* with: --value steps=1"
    ):
        import_model(_saved(counted_loop, tmp_path), hybrid=False)


@pytest.mark.exhaustive
def test_on_a_device_over_rpc_with_and_without_onnx_runtime(model: Model, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "onnxruntime.py").write_text("raise ImportError('not here')")
    for python_path in ("", str(blocked)):
        server = [
            *(
                "env",
                f"PYTHONPATH={python_path}",
                "TVM_USE_RUNTIME_LIB=1",  # as the agent starts it
                sys.executable,
                "-m",
                "tunefarm_workers.device.hardened_server",
            ),
            *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
        ]
        with local_rpc(server_command=server) as farm:
            output = tmp_path / "remote.tunefarm"
            artifact = tunefarm_tuning.compile(model, output=output, device=farm.device, baseline=False)
            hybrid = artifact.report["hybrid"]
            if python_path:
                assert "not installed" in hybrid["not_timed"]
                assert hybrid["parts"][0]["share"] is None
                assert any("not timed on the device" in warning for warning in artifact.report["warnings"])
            else:
                assert hybrid["not_timed"] is None
                assert 0 < hybrid["parts"][0]["share"] < 1
