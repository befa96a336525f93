"""Samples of a user, through child processes and ONNX Runtime, and in the report of a compile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import Model, check_samples, import_model, verify
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.process.errors import ChildClosed
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.testing.records import TunedNet

TAKE_ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


def lookup_net() -> onnx.ModelProto:
    """A network whose integer input holds indices from 2 to 5: no other value is legal, so nothing random runs."""
    g = GraphBuilder()
    token = g.node("Sub", g.input("tokens", [1, 4], TensorProto.INT64), g.ints(2))
    # Row 0 is left out by padding with -5: Gather allows [-4, 3], so 0 and 1 of the input become -7 and -6.
    index = g.node("Where", g.node("Less", token, g.ints(0)), g.node("Sub", token, g.ints(5)), token)
    rows = g.node("Gather", g.weight(4, 16), index)
    g.node("Relu", g.linear(rows, 16, 8), out="y")
    g.output("y", [1, 4, 8])
    return g.model()


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("lookup") / "lookup.onnx"
    path.write_bytes(lookup_net().SerializeToString())
    return import_model(path)


def tokens(path: Path, sets: int = 3, *, largest: int = 5) -> Path:
    rng = np.random.default_rng(1)
    values = rng.integers(2, 6, (sets, 1, 4))
    values[-1, 0, 0] = largest
    np.savez_compressed(path, tokens=values)
    return path


def test_samples_of_legal_indices_are_checked_and_counted(lookup: Model, tmp_path: Path) -> None:
    summary = check_samples(tokens(tmp_path / "t.npz", 20), lookup)
    assert summary.sets == 20
    assert summary.used[0] == 0
    assert summary.used[-1] == 19
    assert len(summary.used) == 8


def test_an_index_out_of_range_is_found_before_any_search(lookup: Model, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not run on sample set 2") as raised:
        check_samples(tokens(tmp_path / "t.npz", largest=6), lookup)
    assert raised.value.code == "samples-failed"
    assert raised.value.fields == {"set": 2}


def test_errors_of_the_child_come_through(lookup: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", tokens=np.zeros((1, 4), np.float32))
    with pytest.raises(InvalidInputError) as raised:
        check_samples(tmp_path / "t.npz", lookup)
    assert raised.value.code == "sample-dtype"
    with pytest.raises(InvalidInputError) as absent:
        check_samples(tmp_path / "none.npz", lookup)
    assert absent.value.code == "no-such-file"
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidInputError) as text:
        check_samples(tmp_path / "text.npz", lookup)
    assert text.value.code == "not-npz"


def test_a_file_over_the_limit_is_not_read(lookup: Model, tmp_path: Path) -> None:
    with (tmp_path / "t.npz").open("wb") as file:
        file.truncate(2 << 30)  # sparse
    with pytest.raises(InvalidInputError, match="has 2147483648 bytes; the limit is 268435456") as raised:
        check_samples(tmp_path / "t.npz", lookup)
    assert raised.value.code == "samples-too-large"


def test_samples_end_with_their_limits_and_with_the_user(lookup: Model, tmp_path: Path) -> None:
    path = tokens(tmp_path / "t.npz")
    with pytest.raises(InvalidInputError) as slow:
        check_samples(path, lookup, limits=ImportLimits(timeout_sec=0.0))
    assert slow.value.code == "samples-timeout"
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(ChildClosed):
        check_samples(path, lookup, cancellation=cancellation)


def test_a_network_that_runs_on_samples_alone(lookup: Model, tmp_path: Path) -> None:
    output = tmp_path / "lookup.tunefarm"
    with pytest.raises(InvalidModelError, match="ONNX Runtime cannot run the model"):
        tunefarm_tuning.compile(lookup, output=output, limits=TAKE_ANY_SPEED, baseline=False)
    path = tokens(tmp_path / "t.npz", 20)
    artifact = tunefarm_tuning.compile(lookup, output=output, limits=TAKE_ANY_SPEED, samples=path)
    checks = artifact.report["checks"]
    assert checks["ok"]
    used = list(check_samples(path, lookup).used)
    assert [(s["kind"], s["file"], s["sample"]) for s in checks["input_sets"]] == [
        ("sample", 0, i) for i in used
    ]
    assert checks["samples"]["files"] == [{"sets": 20, "used": used, "fits": 0}]
    assert checks["samples"]["max_abs_error"] == checks["max_abs_error"]
    assert any("compared only on samples" in warning for warning in artifact.report["warnings"])
    report = verify(artifact.path, lookup, samples=[path, path])
    assert report.ok
    assert len(report.outputs) == 16
    content = artifact.path.read_bytes()
    assert path.name.encode() not in content
    assert "sha256" not in json.dumps(checks)


@pytest.mark.exhaustive
def test_samples_are_compared_before_random_inputs(tiny_net: TunedNet, tmp_path: Path) -> None:
    (spec,) = tiny_net.model.inputs
    np.savez(tmp_path / "x.npz", np.random.default_rng(0).random((2, *spec.shape), np.float32))
    artifact = tunefarm_tuning.compile(
        tiny_net.model,
        output=tmp_path / "t",
        limits=TAKE_ANY_SPEED,
        samples=str(tmp_path / "x.npz"),
        baseline=False,
    )
    kinds = [input_set["kind"] for input_set in artifact.report["checks"]["input_sets"]]
    assert kinds[:2] == ["sample", "sample"]
    assert len(kinds) > 2
    assert "sample" not in kinds[2:]
    wrong = verify(artifact.path, tiny_net.other_weights, samples=tmp_path / "x.npz")
    assert not wrong.ok
    assert "(sample set 0 of file 0)" in wrong.message


def test_a_compile_refuses_samples_that_do_not_fit(tiny_net: TunedNet, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", wrong=np.zeros(3))
    output = tmp_path / "t.tunefarm"
    with pytest.raises(InvalidInputError) as raised:
        tunefarm_tuning.compile(tiny_net.model, output=output, samples=tmp_path / "x.npz")
    assert raised.value.code == "unknown-sample"
    assert not output.exists()
    with pytest.raises(InvalidInputError) as many:
        verify(output, tiny_net.model, samples=[tmp_path / "x.npz"] * 9)
    assert many.value.code in ("too-many-sample-files", "no-such-file", "not-an-artifact")
    assert replace(tiny_net.model).inputs  # the model is as it was


@pytest.mark.exhaustive
def test_samples_of_a_network_of_several_shapes(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.node("Relu", g.linear(g.input("x", ["batch", 16]), 16, 8), out="y")
    g.output("y", ["batch", 8])
    path = tmp_path / "net.onnx"
    path.write_bytes(g.model().SerializeToString())
    np.savez(tmp_path / "one.npz", x=np.ones((1, 16), np.float32))
    artifact = tunefarm_tuning.compile(
        import_model(path, shapes={"x": "1|2,16"}),
        "llvm -num-cores=1",
        output=tmp_path / "net",
        samples=tmp_path / "one.npz",
        limits=TAKE_ANY_SPEED,
    )
    assert len(artifact.report["shapes"]) == 2
    assert all(shape["latency"]["onnxruntime"] for shape in artifact.report["shapes"])
    assert artifact.report["checks"]["samples"]["files"]
