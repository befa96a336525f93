"""Recorded answers of NVML, read from a file, for machines without a GPU. `open_nvml` chooses.

The file is a JSON object::

    {"driver": "550.54.15", "tells_our_pids": true,
     "gpus": [{"uuid": "GPU-...", "name": "NVIDIA H100 80GB HBM3", "clock": 1980, ...}]}

A GPU has an answer to every `Question`, under the question's value. An answer, a GPU or the whole file may be
``{"error": "NVML_ERROR_NOT_SUPPORTED"}``. ``python -m tunefarm_tuning.measure.gpu.nvml_recorded`` prints such a file for the
machine that it runs on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefarm_tuning.measure.gpu.nvml import Nvml, NvmlError, NvmlLibrary, Question

ANSWERS = "NVML_ANSWERS"
"""Environment variable: a file of recorded answers, which take the driver's place."""


def recorded_folders(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the folder of the recorded answers, if there are any: a child that asks the driver has to read them, also when replaced."""
    recorded = environment.get(ANSWERS)
    return (Path(recorded).absolute().parent,) if recorded else ()


_NOT_RECORDED = "NVML_ERROR_NOT_SUPPORTED"


class RecordedNvml:
    """Implements `Nvml` (see there); reads the file again at every question, so that answers can change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def driver(self) -> str:
        return str(self._read()["driver"])

    def uuids(self) -> list[str | NvmlError]:
        return [
            NvmlError(gpu["error"]) if "error" in gpu else str(gpu["uuid"]) for gpu in self._read()["gpus"]
        ]

    def ask(self, uuid: str, question: Question) -> Any:
        for gpu in self._read()["gpus"]:
            if gpu.get("uuid") == uuid:
                return _checked(_checked(gpu).get(question.value, {"error": _NOT_RECORDED}))
        raise NvmlError("NVML_ERROR_NOT_FOUND")

    def tells_our_pids(self) -> bool:
        return bool(self._read().get("tells_our_pids", True))

    def _read(self) -> Any:
        try:
            answers = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise NvmlError("NVML_ERROR_LIBRARY_NOT_FOUND") from error
        return _checked(answers)


def open_nvml(environment: Mapping[str, str] = os.environ) -> Nvml:
    """Return the driver's answers; recorded ones if the environment variable `ANSWERS` names a file of them."""
    recorded = environment.get(ANSWERS)
    return RecordedNvml(Path(recorded)) if recorded else NvmlLibrary()


def _checked(answer: Any) -> Any:
    if isinstance(answer, Mapping) and "error" in answer:
        raise NvmlError(str(answer["error"]))
    return answer


def record(nvml: Nvml) -> dict[str, Any]:
    """Return NVML's present answers in the form of such a file."""

    def answer(uuid: str, question: Question) -> Any:
        try:
            return nvml.ask(uuid, question)
        except NvmlError as error:
            return {"error": error.name}

    return {
        "driver": nvml.driver(),
        "tells_our_pids": nvml.tells_our_pids(),
        "gpus": [
            {"error": uuid.name}
            if isinstance(uuid, NvmlError)
            else {"uuid": uuid, **{question.value: answer(uuid, question) for question in Question}}
            for uuid in nvml.uuids()
        ],
    }


if __name__ == "__main__":
    try:
        print(json.dumps(record(NvmlLibrary()), indent=1))
    except NvmlError as error:
        sys.exit(f"no answers: {error.message}")
