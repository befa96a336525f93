"""The table of default schedules: a network as a whole, and each of its kernels."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from benchmarks import defaults
from repository import ROOT

pytestmark = pytest.mark.exhaustive


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kernel_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(load("examples/tiny_convnet.py").build_tiny_mlp(seed=0).SerializeToString())
    title, network, _, _, *rows = defaults.report(str(path), tmp_path)
    assert "tiny" in title
    assert "ONNX Runtime's time" in network
    assert len(rows) == 3
    assert all("GFLOP/s" in row or "GB/s" in row for row in rows)
