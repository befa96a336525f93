"""Recorded answers of NVML that a test can change: see ``nvml/README.md``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "nvml"

_NOT_SUPPORTED = {"error": "NVML_ERROR_NOT_SUPPORTED"}
_KINDS: dict[str, dict[str, Any]] = {
    "H100": {"name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "memory": [81559 << 20, 4 << 20]},
    "A10": {"name": "NVIDIA A10", "compute_capability": [8, 6], "memory": [23028 << 20, 4 << 20]},
    "odd": {"name": "Graphics Device", "compute_capability": _NOT_SUPPORTED, "memory": [1 << 30, 0]},
}


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-1234-5678-9abc-def012345678"


class Driver:
    """Answers from a file of the test's own; no driver at all until told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Any] = {}

    def has(self, *kinds: str) -> None:
        """Let the machine have these GPUs."""
        eight = json.loads((RECORDED / "eight.json").read_text())
        self.answers = {
            **eight,
            "gpus": [
                {**eight["gpus"][number], **_KINDS[kind], "temperature": 41 + number}
                for number, kind in enumerate(kinds)
            ],
        }
        self._write()

    def is_as(self, name: str) -> None:
        """Let the machine be one of those in the folder."""
        self.answers = json.loads((RECORDED / f"{name}.json").read_text())
        self._write()

    def fails(self) -> None:
        """Let it fail as it does where the kernel module and the library differ."""
        self.answers = {"error": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}
        self._write()

    def answers_of(self, number: int, **answers: Any) -> None:
        """Let a GPU answer otherwise from now on."""
        self.answers["gpus"][number].update(answers)
        self._write()

    def _write(self) -> None:
        part = self.path.with_suffix(f".part{os.getpid()}")
        part.write_text(json.dumps(self.answers))
        part.replace(self.path)
