"""Runs of CUDA's compiler: its failures and time-outs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_nvcc import fake_nvcc
from waiting import wait_gone

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen import cuda_compile
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_cuda


def test_a_compiler_that_takes_too_long_is_ended_with_all_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    # As nvcc does it: the work is a child's.
    fake_nvcc(tmp_path / "bin", script=f"sleep 100000 &\necho $! > {note}.new && mv {note}.new {note}\nwait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    timeout_sec = 1.0
    while not note.exists():  # the time was up before it began: on a slow machine it takes more
        assert timeout_sec < 300
        monkeypatch.setattr(cuda_compile, "_TIMEOUT_SEC", timeout_sec)
        with pytest.raises(InvalidInputError, match="not done within") as caught:
            compile_cuda(b"", parse_target("cuda/sm_90"), tmp_path)
        assert caught.value.code == "cuda-compile-failed"
        timeout_sec *= 2
    wait_gone([int(note.read_text())], "the compiler's child")
