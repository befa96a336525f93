"""ONNX Runtime sends no telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["reference_child", "check_child"])
def test_onnxruntime_reports_nothing(module: str, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    program = f"import tunefarm_tuning.frontend.onnx.{module}, onnxruntime"
    subprocess.run(
        [sys.executable, "-c", program], env={**env, "TMPDIR": str(tmp_path)}, check=True, timeout=120
    )
    assert list(tmp_path.iterdir()) == []
