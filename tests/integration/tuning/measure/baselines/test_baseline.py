"""A network in the real OpenVINO and LiteRT, each in a sandboxed child process; and what becomes of one that fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_imports import path_without
from onnx_models import GraphBuilder
from tflite_zoo import ZOO

from tunefarm_tuning import Model, import_model
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.measure.baselines.baseline import Baseline, BaselineFailed, BaselineNetwork, LocalChild
from tunefarm_tuning.measure.baselines.runtimes import KINDS, NOT_INSTALLED, installed_version
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.reference.onnx_runtime import Reference

pytestmark = pytest.mark.skipif(
    any(installed_version(kind) is None for kind in KINDS.values()),
    reason="OpenVINO and LiteRT are not installed: `make test-setup` does",
)


def conv_net(path: Path, *, values: dict[str, Any] | None = None) -> Model:
    g = GraphBuilder()
    x = g.input("x", [1, 8, 16, 16])
    g.node("Relu", g.node("Add", g.conv(x, 8, 32), g.input("bias", [1])), out="y")
    g.output("y", [1, 32, 16, 16])
    path.write_bytes(g.model().SerializeToString())
    return import_model(path, values=values or {"bias": [0.5]})


def tflite_net(path: Path, name: str = "a_block_with_a_gate") -> Model:
    path.write_bytes(ZOO[name]().data)
    return import_model(path)


@contextmanager
def network_of(model: Model, folder: Path) -> Iterator[BaselineNetwork]:
    with closing(Reference(model, folder, threads=1, memory_bytes=8 << 30, timeout_sec=120.0)) as reference:
        input_set = reference.make(0, thorough=False)[0]
        written = reference.write_network()
    yield BaselineNetwork(
        path=written or model.path,
        names=tuple(spec.name for spec in model.inputs),
        outputs=tuple(spec.name for spec in model.outputs),
        constants=model.binding.to_json()["values"] if written is None else {},
        input_set=input_set,
        threads=1,
    )


@contextmanager
def opened(name: str, network: BaselineNetwork) -> Iterator[tuple[Baseline, LocalChild]]:
    child = LocalChild(network, ChildLimits())
    with closing(Baseline(KINDS[name], network, child, timeout_sec=120.0)) as baseline:
        yield baseline, child


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize(
    ("name", "is_tflite"),
    [("openvino", False), ("openvino", True), ("openvino_default", False), ("litert", True)],
)
def test_it_is_timed_and_compared_with_the_reference(name: str, is_tflite: bool, tmp_path: Path) -> None:
    model = tflite_net(tmp_path / "net.tflite") if is_tflite else conv_net(tmp_path / "net.onnx")
    with network_of(model, tmp_path) as network, opened(name, network) as (baseline, _):
        assert 0 < baseline.open_timed() < 1
        assert baseline.open_timed() == baseline.open_timed(), "opened once"
        sample = baseline.sample(5)
        facts = baseline.facts
    assert 0 < sample["sample_sec"] < 1
    assert len(sample["groups_sec"]) == 5
    assert sample["watched"]["wall_sec"] >= 5 * sample["sample_sec"]
    assert facts.missing == ""
    assert facts.version == installed_version(KINDS[name])
    if name == "openvino_default":
        assert facts.computes in ("float32", "bfloat16", "float16")
        assert facts.checks["ok"] is (facts.computes == "float32")
        assert facts.checks["mean_rel_error"] < 0.02
        return
    assert facts.computes == ("as in the file" if name == "litert" else "float32")
    assert facts.checks["ok"], facts.checks["message"]
    assert facts.checks["max_rel_error"] < 1e-4


@pytest.mark.exhaustive
def test_outputs_that_are_wrong_are_told_apart(tmp_path: Path) -> None:
    with network_of(conv_net(tmp_path / "net.onnx"), tmp_path) as network:
        (right,) = load_arrays(network.input_set.expected)
        save_arrays(network.input_set.expected, [right + np.float32(1.0)])
        with opened("openvino", network) as (baseline, _):
            baseline.open_timed()
    assert baseline.facts.checks["ok"] is False
    assert baseline.facts.checks["max_abs_error"] == pytest.approx(1.0, rel=1e-3)
    assert "outside the tolerance" in baseline.facts.checks["message"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(KINDS))
def test_a_file_that_it_cannot_read_is_a_note(name: str, tmp_path: Path) -> None:
    with network_of(conv_net(tmp_path / "net.onnx"), tmp_path) as network:
        network.path.write_bytes(network.path.read_bytes()[:200])
        with (
            opened(name, network) as (baseline, _),
            pytest.raises(BaselineFailed, match="does not run the network"),
        ):
            baseline.open_timed()
    assert baseline.facts.missing.startswith("it does not run the network: ")
    assert len(baseline.facts.missing) > len("it does not run the network: ")
    assert str(tmp_path) not in baseline.facts.missing, "reports are passed on"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["openvino", "litert"])
def test_where_it_is_not_installed_a_note_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with network_of(tflite_net(tmp_path / "net.tflite"), tmp_path) as network:
        monkeypatch.setenv("PYTHONPATH", path_without(tmp_path / "site", KINDS[name].package))
        with opened(name, network) as (baseline, _), pytest.raises(BaselineFailed):
            baseline.open_timed()
    assert baseline.facts.missing == NOT_INSTALLED
    assert "tunefarm[baselines]" in NOT_INSTALLED


def test_one_that_dies_stays_away_and_says_so(tmp_path: Path) -> None:
    with (
        network_of(conv_net(tmp_path / "net.onnx"), tmp_path) as network,
        opened("openvino", network) as (baseline, child),
    ):
        baseline.open_timed()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(BaselineFailed, match="it failed: "):
                baseline.sample(1)
        with pytest.raises(BaselineFailed, match="it failed: "):
            baseline.open_timed()
    assert "it failed: " in baseline.facts.missing


def test_it_reads_nothing_but_the_network_and_the_arrays(tmp_path: Path) -> None:
    secret = tmp_path / "secret.onnx"
    with network_of(conv_net(tmp_path / "net.onnx"), tmp_path) as network:
        secret.write_bytes(network.path.read_bytes())
        child = LocalChild(network, ChildLimits())
        stolen = replace(network, path=secret)
        with (
            closing(Baseline(KINDS["openvino"], stolen, child, timeout_sec=60.0)) as baseline,
            pytest.raises(BaselineFailed, match="does not run the network"),
        ):
            baseline.open_timed()
        with opened("openvino", stolen) as (baseline, _):
            assert baseline.open_timed() > 0, "the file itself is fine"
