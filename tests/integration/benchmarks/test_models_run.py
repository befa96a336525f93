"""The benchmark of whole networks, on a tiny one with a minimal budget."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from benchmarks.models.run import main
from benchmarks.models.table import make_table
from benchmarks.search import json_lines
from repository import ROOT

pytestmark = pytest.mark.exhaustive


def write_tiny_model(path: Path) -> Path:
    spec = importlib.util.spec_from_file_location(
        "examples_tiny_convnet", ROOT / "examples" / "tiny_convnet.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_bytes(module.build_tiny_mlp().SerializeToString())
    return path


def test_it_tunes_compiles_times_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "models.jsonl"
    network = str(write_tiny_model(tmp_path / "tiny.onnx"))
    arguments = ["--output", str(output), "--models", network, "--threads", "1", "--rounds", "2"]
    arguments += ["--minutes", "0.05"]
    assert main(arguments) == 0
    (line,) = json_lines.load(output)
    assert (line["model"], line["threads"], line["minutes"]) == ("tiny", 1, 0.05)
    assert line["trials"] > 0
    assert line["num_tasks"] == len(line["tasks"]) > 0
    for kind in ("artifact", "onnxruntime", "untuned", "plain", "artifact_call", "onnxruntime_call"):
        assert line["latency_ms"][kind] > 0
    assert line["ratio"] > 0
    assert line["relative_difference"] < 1e-3
    assert line["peak"]["threads"] == 1
    assert line["versions"]["apache-tvm"]
    assert set(line["left_out"]) <= {"torch", "torch_compile"}
    assert "| tiny | " in make_table([line])

    assert main(arguments) == 0  # finished: nothing is done again
    assert len(json_lines.load(output)) == 1
    assert "finished before" in capsys.readouterr().err

    assert main([*arguments, "--retime", "--no-untuned"]) == 0
    again = json_lines.load(output)[-1]
    assert (again["minutes"], again["trials"]) == (line["minutes"], line["trials"])
    assert again["left_out"]["untuned"] == "not asked for"


def test_a_model_that_fails_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    output = tmp_path / "models.jsonl"
    models = [str(broken), str(tmp_path / "none.onnx")]
    assert main(["--output", str(output), "--models", *models, "--threads", "1"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [text.split(",")[0] for text in lines] == ["broken", "none"]
    assert not output.exists()
