"""Fixtures for tests of the device agent's parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvml_answers import Driver

from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The only driver of this machine."""
    answers = tmp_path / "nvml.json"
    monkeypatch.setenv(ANSWERS, str(answers))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver(answers)
