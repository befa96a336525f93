"""Faults in kernels of a compiled network are found; the network without them is right."""

from __future__ import annotations

from pathlib import Path

import onnx_zoo
from benchmarks.faults import FAULTS, results, run_network

from tunefarm_tuning import import_model


def test_all_faults_in_a_small_network_are_found(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_zoo.build("cnn", 17).SerializeToString())
    line = run_network("cnn", import_model(path), tmp_path, threads=1)
    assert line["right"], line["message"]
    assert {trial["fault"] for trial in line["outputs"]} == set(FAULTS)
    missed = [trial for trial in line["outputs"] if not trial["found"]]
    in_segments = [trial for trial in line["segments"] if trial["found"]]
    assert len(in_segments) == len(missed), missed
    assert "| cnn | yes |" in results([line])
