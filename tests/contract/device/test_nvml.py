"""Every shipped `Nvml` answers each question with a JSON value of the same form, or gives a reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvml_answers import RECORDED
from nvml_answers import uuid as uuid_of

from tunefarm_tuning.measure.gpu.nvml import Nvml, NvmlError, NvmlLibrary, Question
from tunefarm_tuning.measure.gpu.nvml_recorded import RecordedNvml, record

FORMS: dict[Question, Any] = {
    Question.NAME: str,
    Question.COMPUTE_CAPABILITY: [int, int],
    Question.MEMORY: [int, int],
    Question.CLOCK: int,
    Question.CLOCK_MAX: int,
    Question.MEMORY_CLOCK: int,
    Question.MEMORY_CLOCK_MAX: int,
    Question.TEMPERATURE: int,
    Question.POWER: int,
    Question.POWER_LIMIT: int,
    Question.LOAD: int,
    Question.EVENTS: int,
    Question.MIG: bool,
}


def check(nvml: Nvml) -> int:
    """Ask everything; return how many answers there were."""
    assert nvml.driver()
    assert nvml.tells_our_pids() in (True, False)
    answers = 0
    refused: list[NvmlError] = []
    for uuid in nvml.uuids():
        if isinstance(uuid, NvmlError):
            assert uuid.name.startswith("NVML_ERROR_")
            continue
        assert uuid.startswith(("GPU-", "MIG-"))
        for question in Question:
            try:
                answer = nvml.ask(uuid, question)
            except NvmlError as error:
                refused.append(error)
                continue
            answers += 1
            assert json.loads(json.dumps(answer)) == answer
            if question is Question.PROCESSES:
                assert all(type(pid) is int and len(rest) == 2 for pid, *rest in answer)
            elif question is Question.PROCESS_LOADS:
                assert all(type(pid) is int and 0 <= load <= 100 for pid, load in answer)
            elif isinstance(form := FORMS[question], list):
                assert [type(part) for part in answer] == form
            else:
                assert type(answer) is form
    with pytest.raises(NvmlError):
        nvml.ask("GPU-that-there-is-not", Question.NAME)
    assert all(error.code == "nvml" and error.name.startswith("NVML_ERROR_") for error in refused)
    return answers


@pytest.mark.parametrize(
    ("machine", "answers"), [("eight", 8 * 15), ("lost", 6 * 15 + 1), ("unsupported", 9), ("mig", 13 + 15)]
)
def test_recorded_answers(machine: str, answers: int) -> None:
    assert check(RecordedNvml(RECORDED / f"{machine}.json")) == answers


@pytest.mark.parametrize("machine", ["eight", "lost", "unsupported", "mig"])
def test_a_recording_of_recorded_answers_says_the_same(machine: str) -> None:
    path = RECORDED / f"{machine}.json"
    assert record(RecordedNvml(path)) == json.loads(path.read_text())


def test_the_drivers_own_answers() -> None:
    nvml = NvmlLibrary()
    why = refusal(nvml.driver)
    if why:
        assert why in ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")
        assert refusal(nvml.uuids) == refusal(lambda: nvml.ask("GPU-0", Question.NAME)) == why
        pytest.skip("no NVIDIA driver on this machine: only that its absence is told was checked")
    assert check(nvml) >= len(nvml.uuids())


@pytest.mark.parametrize("options", [[], ["-DOLD"]])
def test_the_binding_on_a_stub_of_the_drivers_library(tmp_path: Path, options: list[str]) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    stub = [compiler, "-shared", "-fPIC", *options, "-o", str(library), str(RECORDED / "stub.c")]
    subprocess.run(stub, check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-m", "tunefarm_tuning.measure.gpu.nvml_recorded"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (only,) = document["gpus"]
    assert (document["driver"], only) == (
        "550.54.15",
        {
            "uuid": uuid_of(0),
            "name": "NVIDIA H100 80GB HBM3",
            "compute_capability": [9, 0],
            "memory": [85520809984, 4194304],
            "clock": 1755,
            "clock_max": 1980,
            "memory_clock": 2619,
            "memory_clock_max": 2620,
            "temperature": 41,
            "power": 70500,
            "power_limit": 700000,
            "load": 97,
            "events": 0x4,
            "mig": {"error": "NVML_ERROR_NOT_SUPPORTED"},
            "processes": [[4242, 1 << 30, "/usr/bin/python3"], [4343, None, None]],
            "process_loads": [[4242, 96]],
        },
    )
    path = tmp_path / "told.json"
    path.write_text(done.stdout)
    assert check(RecordedNvml(path)) == len(Question) - 1


def refusal(ask: Callable[[], object]) -> str:
    """Return why there is no answer; empty where there is one."""
    try:
        ask()
    except NvmlError as error:
        return error.name
    return ""
