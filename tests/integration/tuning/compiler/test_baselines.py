"""Compiles that time other runtimes beside the network: the real OpenVINO and LiteRT, here and on a device over RPC."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from blocked_imports import path_without
from onnx_models import GraphBuilder
from tflite_zoo import ZOO

import tunefarm_tuning
from tunefarm_tuning import History, Model, import_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.compiler.time_again import time_again
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.baselines.runtimes import KINDS, NOT_INSTALLED, installed_version
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.testing.local_rpc import LocalRpc, local_rpc

pytestmark = pytest.mark.skipif(
    any(installed_version(kind) is None for kind in KINDS.values()),
    reason="OpenVINO and LiteRT are not installed: `make test-setup` does",
)
LIMITS = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
LITERT_REFUSES = "it reads only TFLite files, and the network's file is ONNX"


@pytest.fixture(scope="module")
def onnx_net(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    g = GraphBuilder()
    g.node("Relu", g.conv(g.input("x", [1, 8, 16, 16]), 8, 32), out="y")
    g.output("y", [1, 32, 16, 16])
    path.write_bytes(g.model().SerializeToString())
    return import_model(path)


@pytest.fixture(scope="module")
def tflite_net(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("net") / "760729be"  # as in a farm's store
    path.write_bytes(ZOO["a_block_with_a_gate"]().data)
    return import_model(path)


def latency_of(model: Model, folder: Path, baselines: str, **more: Any) -> dict[str, Any]:
    artifact = tunefarm_tuning.compile(
        model, "llvm -num-cores=1", output=folder / "net", baselines=baselines, limits=LIMITS, **more
    )
    latency: dict[str, Any] = artifact.report["latency"]
    return latency


def test_each_is_timed_in_the_same_blocks_or_says_why_not(onnx_net: Model, tmp_path: Path) -> None:
    latency = latency_of(onnx_net, tmp_path, "litert,openvino,openvino-default")
    facts = latency["baselines"]
    assert list(facts) == ["openvino", "openvino_default", "litert"]
    for name in ("openvino", "openvino_default"):
        assert facts[name]["missing"] == ""
        assert latency[name]["threads"] == 1
        assert len(latency[name]["samples_sec"]) >= 3
        assert latency[name]["disturbance"]["blocks"] == latency["onnxruntime"]["disturbance"]["blocks"]
        ratio = latency[name]["median_sec"] / latency["tuned"]["median_sec"]
        assert latency["ratios"][name]["value"] == pytest.approx(ratio)
    assert facts["openvino"]["checks"]["ok"] is True
    assert facts["openvino"]["computes"] == "float32"
    assert facts["litert"]["missing"] == LITERT_REFUSES
    assert "litert" not in latency


@pytest.mark.exhaustive
def test_litert_runs_the_file_that_was_uploaded(tflite_net: Model, tmp_path: Path) -> None:
    artifact = tunefarm_tuning.compile(
        tflite_net,
        "llvm -num-cores=1",
        output=tmp_path / "a",
        baselines=["litert", "openvino"],
        limits=LIMITS,
    )
    facts = artifact.report["latency"]["baselines"]
    assert {name: each["checks"]["ok"] for name, each in facts.items()} == {"openvino": True, "litert": True}
    assert "LiteRT" in artifact.report["method"]["baselines"]
    again = time_again(artifact.path, tflite_net, baselines=["litert"], limits=LIMITS)
    assert again.latency["litert"].median_sec > 0
    assert again.baselines["litert"]["checks"]["ok"] is True
    assert set(again.latency) == {"tuned", "untuned", "onnxruntime", "litert"}


def test_an_unknown_one_is_refused_before_anything_is_done(onnx_net: Model, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no baseline 'tvm'") as refused:
        latency_of(onnx_net, tmp_path, "openvino,tvm")
    assert refused.value.code == "unknown-baseline"


@pytest.mark.exhaustive
def test_one_that_is_not_installed_costs_nothing(
    onnx_net: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    latency = latency_of(onnx_net, tmp_path, "openvino")
    assert latency["baselines"]["openvino"]["missing"] == NOT_INSTALLED
    assert "openvino" not in latency
    assert latency["onnxruntime"]["median_sec"] > 0


@pytest.mark.exhaustive
def test_one_that_is_killed_while_it_is_timed_is_a_note(onnx_net: Model, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(phase: str, done: float) -> None:
        if phase != "measure" or not 0 < done < 1:
            return
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # others end meanwhile
                if child.pid not in killed and any("openvino" in file.path for file in child.memory_maps()):
                    child.kill()
                    killed.append(child.pid)

    latency = latency_of(onnx_net, tmp_path, "openvino", on_progress=kill)
    assert killed
    assert latency["baselines"]["openvino"]["missing"].startswith("it failed: ")
    assert set(latency["ratios"]) == {"untuned", "onnxruntime"}
    assert len(latency["tuned"]["samples_sec"]) >= 3, "the others go on; a busy machine drops some samples"


@pytest.mark.exhaustive
def test_what_an_earlier_compile_timed_is_used_again(onnx_net: Model, tmp_path: Path) -> None:
    quiet = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
    first = Findings()
    arguments: dict[str, Any] = {"target": "llvm -num-cores=1", "limits": quiet, "baselines": "openvino"}
    before = tunefarm_tuning.compile(
        onnx_net, output=tmp_path / "a", history=History((), first), **arguments
    ).report["latency"]
    remembered = [finding for finding in first.noted.values() if "latency" in finding]
    for finding in remembered:  # a busy machine notes nothing
        assert finding["baselines"]["openvino"] == before["baselines"]["openvino"]
        assert "openvino" in finding["latency"]


@pytest.fixture
def farm(tmp_path: Path) -> Any:
    """A device that has OpenVINO, and no LiteRT."""
    server = [
        *("env", f"PYTHONPATH={path_without(tmp_path / 'site', 'ai_edge_litert')}"),
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    ]
    with local_rpc(server_command=server) as farm:
        yield farm


@pytest.mark.exhaustive
def test_on_a_device_they_run_where_the_network_runs(
    farm: LocalRpc, onnx_net: Model, tflite_net: Model, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    latency = latency_of(onnx_net, tmp_path / "one", "openvino,litert", device=farm.device)
    assert latency["baselines"]["openvino"]["checks"]["ok"] is True
    assert latency["openvino"]["disturbance"]["others_cores"] is not None, "it is watched there"
    assert latency["baselines"]["litert"]["missing"] == LITERT_REFUSES
    assert latency["onnxruntime"] is None
    artifact = tunefarm_tuning.compile(
        tflite_net, "llvm -num-cores=1", output=tmp_path / "a", device=farm.device, limits=LIMITS
    )
    timed = time_again(
        artifact.path, tflite_net, device=farm.device, baselines=["openvino", "litert"], limits=LIMITS
    )
    assert timed.baselines["openvino"]["checks"]["ok"] is True
    assert timed.baselines["litert"]["missing"] == NOT_INSTALLED
    assert set(timed.latency) == {"tuned", "untuned", "openvino"}


@pytest.mark.exhaustive
def test_a_device_of_an_older_release_times_none(onnx_net: Model, tmp_path: Path) -> None:
    with local_rpc() as plain:
        latency = latency_of(onnx_net, tmp_path, "openvino", device=plain.device)
    assert "older than this farm" in latency["baselines"]["openvino"]["missing"]
    assert latency["tuned"]["median_sec"] > 0
