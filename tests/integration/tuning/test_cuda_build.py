"""Kernels for NVIDIA GPUs, built where there is no GPU: machine code of the architecture, and no process left behind."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from fake_nvcc import fake_nvcc
from waiting import wait_until

from tunefarm_tuning.builder import LocalBuilder
from tunefarm_tuning.errors import InvalidInputError
from tunefarm_tuning.measure import BuildInput, BuildResult, Outcome
from tunefarm_tuning.task import TuningTask
from tunefarm_tuning.testing.workloads import sample_task

pytest.importorskip("tvm")

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building for CUDA needs nvcc")
_MACHINE_CUDA = 190


def first_builds(builder: LocalBuilder, task: TuningTask, n: int, *, seed: int = 0) -> list[BuildResult]:
    configs = builder.config_space(task).sample(np.random.default_rng(seed), n)
    return builder.build([BuildInput(task=task, config=one) for one in configs])


def machine_codes(library: Path) -> list[int]:
    """Return for which architectures a library has machine code: ``90`` for sm_90."""
    data = library.read_bytes()
    found = []
    place = data.find(b"\x7fELF", 1)
    while place >= 0:
        header = data[place : place + 64]
        if struct.unpack_from("<H", header, 18) == (_MACHINE_CUDA,):
            (flags,) = struct.unpack_from("<I", header, 48)
            # Since CUDA 13 (ABI version 8) the architecture is in the second byte, before in the first.
            found.append(flags >> 8 & 0xFF if header[8] >= 8 else flags & 0xFF)
        place = data.find(b"\x7fELF", place + 1)
    return found


@needs_nvcc
@pytest.mark.parametrize("arch", [80, 90])
def test_a_library_holds_machine_code_of_its_architecture_and_no_source(tmp_path: Path, arch: int) -> None:
    task = sample_task("softmax", n=64, target=f"cuda/sm_{arch}")
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300, cache_bytes=0) as builder:
        (result,) = first_builds(builder, task, 1)
        assert result.failure is None
        assert result.artifact_path is not None
        assert machine_codes(result.artifact_path) == [arch]
        text = result.artifact_path.read_bytes()
    assert b"__global__" not in text
    assert b".target sm_" not in text


def test_without_the_compiler_no_candidate_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvcc(tmp_path / "bin", architectures=("75",))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with (
        LocalBuilder(workers=1, work_dir=tmp_path) as builder,
        pytest.raises(InvalidInputError, match="cannot build for sm_90") as caught,
    ):
        builder.config_space(sample_task("softmax", n=64, target="cuda/sm_90"))
    assert caught.value.code == "cuda-compiler-unfit"


def test_what_the_compiler_says_is_the_candidates_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvcc(
        tmp_path / "bin", script="echo warning; echo 'kernels.cu(3): error: too much of it' >&2; exit 2"
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    task = sample_task("softmax", n=64, target="cuda/sm_90")
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300) as builder:
        (result,) = first_builds(builder, task, 1)
    assert result.failure is not None
    assert result.failure.outcome is Outcome.BUILD_ERROR
    assert result.failure.message == "nvcc: kernels.cu(3): error: too much of it"


def test_a_build_that_is_cut_off_leaves_no_compiler_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    # As nvcc does it: the work is a child's.
    fake_nvcc(tmp_path / "bin", script=f"sleep 100000 &\necho $! > {note}.new && mv {note}.new {note}\nwait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    task = sample_task("softmax", n=64, target="cuda/sm_90")
    timeout_sec = 2.0
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=timeout_sec) as builder:
        while not note.exists():  # the time was up before the compiler began: on a slow machine it takes more
            assert timeout_sec < 300
            builder._workers[0]._timeout_sec = timeout_sec
            (result,) = first_builds(builder, task, 1)
            assert result.failure is not None
            assert result.failure.outcome is Outcome.BUILD_TIMEOUT
            timeout_sec *= 2
        pid = int(note.read_text())
        wait_until(lambda: not is_running(pid), "the compiler's child to end")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
