"""What the machine tells of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefarm_workers.device import gpu
from tunefarm_workers.device.vitals import Vitals


def test_they_are_read_anew_after_a_while() -> None:
    now = [0.0]
    vitals = Vitals("cpu", every_sec=5.0, clock=lambda: now[0])
    first = vitals.read()
    assert json.loads(json.dumps(first)) == first
    assert len(first["load"]) == 3
    assert vitals.read() is first
    now[0] = 5.0
    assert vitals.read() is not first


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of ``nvidia-smi``."""
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def answers(program: Path, text: str, code: int = 0) -> None:
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)


def test_a_gpu_is_described(driver: Path) -> None:
    answers(driver, "NVIDIA H100 80GB HBM3, 9.0, 550.54.15, 81559")
    (found,) = gpu.describe()
    assert found == {
        "name": "NVIDIA H100 80GB HBM3",
        "arch": "sm_90",
        "driver": "550.54.15",
        "memory_bytes": 81559 << 20,
    }
    assert gpu.model_of([found]) == "nvidia-h100-80gb-hbm3"
    answers(driver, "41, 1980, 7\n[N/A], 345, 0")
    assert gpu.vitals() == [
        {"temperature_celsius": 41.0, "clock_mhz": 1980.0, "load": 0.07},
        {"clock_mhz": 345.0, "load": 0.0},
    ]


def test_a_driver_that_does_not_answer_is_none(driver: Path) -> None:
    assert gpu.describe() == gpu.vitals() == []
    answers(driver, "NVIDIA-SMI has failed", code=9)
    assert gpu.describe() == []
    answers(driver, "what, is this")
    assert gpu.describe() == []
    assert gpu.model_of([]) is None
