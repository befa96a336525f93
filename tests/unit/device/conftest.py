"""What tests of the device agent's parts share."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvidia_driver import Driver


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The only ``nvidia-smi`` that there is."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver(tmp_path)
