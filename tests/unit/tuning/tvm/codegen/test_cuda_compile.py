"""Runs of CUDA's compiler: its failures and time-outs, and what its assembler says of kernels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_nvcc import fake_nvcc
from waiting import wait_gone

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen import cuda_compile
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_all, compile_cuda, read_resources


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


def test_a_source_is_compiled_once_and_those_that_fail_say_so_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    fake_nvcc(
        tmp_path / "bin",
        architectures=("80", "90"),
        script=f"""for last; do :; done; grep -q bad "$last" && echo 'error: it is bad' && exit 1
echo x >> {log}; while [ $# -gt 1 ]; do [ "$1" = -o ] && tail -c 5 "$last" > "$2"; shift; done""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(cuda_compile, "_recent", {})
    target = parse_target("cuda/sm_90")
    first, second, third = b"\x7fELF1", b"\x7fELF2", b"\x7fELF3"
    compile_all([first, second, b"bad", first], target, tmp_path)
    assert log.read_text().count("x") == 2
    assert [compile_cuda(source, target, tmp_path).data for source in (first, second)] == [first, second]
    assert log.read_text().count("x") == 2
    with pytest.raises(InvalidInputError, match="it is bad"):
        compile_cuda(b"bad", target, tmp_path)
    compile_cuda(first, parse_target("cuda/sm_80"), tmp_path)
    assert log.read_text().count("x") == 3
    monkeypatch.setattr(cuda_compile, "_MOST_KEPT", 1)
    for source in (third, first):
        compile_cuda(source, target, tmp_path)
    assert log.read_text().count("x") == 5, "only the last one is kept"
    with pytest.raises(InvalidInputError) as caught:
        compile_cuda(b"cut off", target, tmp_path)
    assert caught.value.code == "cuda-compile-failed"


PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90'
ptxas info    : Function properties for main_kernel
    1264 bytes stack frame, 756 bytes spill stores, 2048 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1264 bytes cumulative stack size, 3456 bytes smem
ptxas info    : Compile time = 39.779 ms
ptxas info    : Function properties for __internal_trig_reduction_slowpathf
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'main_kernel_1' for 'sm_90'
ptxas info    : Function properties for main_kernel_1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 372 bytes cmem[0]
"""


def test_what_the_assembler_says_of_each_kernel_is_read() -> None:
    first, second = read_resources(PTXAS)
    assert (first.kernel, first.registers, first.static_bytes) == ("main_kernel", 255, 3456)
    assert (first.stack_bytes, first.spill_store_bytes, first.spill_load_bytes) == (1264, 756, 2048)
    assert (second.kernel, second.registers, second.static_bytes) == ("main_kernel_1", 10, 0)
    assert (second.stack_bytes, second.spill_store_bytes, second.spill_load_bytes) == (0, 0, 0)
    assert read_resources("kernels.cu(3): error: too much of it") == ()


def test_what_a_function_that_it_calls_keeps_is_not_the_kernels() -> None:
    """Wherever the assembler says it."""
    kernel, callee = "ptxas info    : Used 255", "ptxas info    : Function properties for __internal_trig\n"
    callee += "    400 bytes stack frame, 40 bytes spill stores, 90 bytes spill loads\n"
    first, _ = read_resources(PTXAS.replace(kernel, callee + kernel))
    assert (first.stack_bytes, first.spill_store_bytes, first.spill_load_bytes) == (1264, 756, 2048)
