"""An artifact is timed again beside its untuned network and ONNX Runtime, in real child processes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import Model, import_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.compiler.time_again import time_again
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvalidInputError

TAKE_ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


def small_net(path: Path, *, size: int) -> Model:
    g = GraphBuilder()
    g.node("Relu", g.linear(g.input("x", [1, 16]), 16, size), out="y")
    g.output("y", [1, size])
    path.write_bytes(g.model().SerializeToString())
    return import_model(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return small_net(tmp_path_factory.mktemp("again") / "net.onnx", size=8)


@pytest.fixture(scope="module")
def artifact(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("again") / "net.tunefarm"
    return tunefarm_tuning.compile(model, "llvm -num-cores=1", output=path, limits=TAKE_ANY_SPEED).path


def test_it_is_timed_as_at_its_compile(model: Model, artifact: Path, tmp_path: Path) -> None:
    timed = time_again(artifact, model, limits=TAKE_ANY_SPEED, objects=tmp_path / "objects")
    assert timed.measured_at > artifact.stat().st_mtime
    for name in ("tuned", "untuned", "onnxruntime"):
        assert timed.latency[name].median_sec > 0
        assert timed.latency[name].threads == 1
    assert timed.latency["tuned"] == timed.latency["untuned"], "without records, they are one library"
    assert timed.no_baseline == ""


@pytest.mark.exhaustive
def test_another_algorithm_without_a_tuned_kernel_is_timed_beside_the_untuned_network(
    model: Model, artifact: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.tunefarm"
    with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                assert manifest["coverage"]["covered"] == 0
                manifest["latency_sec"]["untuned"] *= 2  # at its compile, it took another time
                data = json.dumps(manifest).encode()
            new.writestr(name, data)
    timed = time_again(changed, model, limits=TAKE_ANY_SPEED)
    assert timed.latency["tuned"] != timed.latency["untuned"], "two libraries"


def test_another_model_or_a_cancelled_measurement_is_refused(
    model: Model, artifact: Path, tmp_path: Path
) -> None:
    other = small_net(tmp_path / "other.onnx", size=4)
    with pytest.raises(InvalidInputError, match="compiled from another model") as refused:
        time_again(artifact, other)
    assert refused.value.code == "other-model"
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        time_again(artifact, model, cancellation=cancellation)
