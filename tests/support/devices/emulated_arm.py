"""The emulated Arm machines of the benchmarks, for tests, which are skipped where they cannot be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.arm.machine import (
    CORTEX_A72,
    MAX,
    NEOVERSE_N1,
    ArmCpu,
    ArmMachine,
    CannotBeMade,
    make_emulator,
    make_machine,
)

__all__ = [
    "ARM_COMPILER",
    "CORTEX_A72",
    "MAX",
    "NEOVERSE_N1",
    "ArmCpu",
    "ArmMachine",
    "emulated_machine",
    "emulator",
    "run_folders",
]

ARM_COMPILER = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu")
"""A C compiler for such machines: Clang, with the C library that it links with."""


def emulated_machine(cpu: ArmCpu) -> ArmMachine:
    """Return a machine with such a CPU, made at the first call of all test runs; skip the test if it cannot be made here."""
    try:
        return make_machine(cpu)
    except CannotBeMade as error:
        pytest.skip(f"no emulated Arm machine: {error}")


def emulator(machine: str) -> Path:
    """Return QEMU's program for statically linked programs of a machine; skip the test if it cannot be had here."""
    try:
        return make_emulator(machine)
    except CannotBeMade as error:
        pytest.skip(f"no emulator for {machine}: {error}")


def run_folders(
    machine: ArmMachine, program: Path, folders: Path, result: str, *, timeout_sec: float = 200.0
) -> None:
    """Run a program that writes `result` into each of the folders, in their order, and leaves out those that have it.

    QEMU's user mode now and then hangs where a process has threads: then it is killed, and goes on with the folder that it was at.
    Three times in one folder is a failure, which names it.
    """
    hangs: list[str] = []
    while True:
        missing = sorted(folder.name for folder in folders.iterdir() if not (folder / result).exists())
        if not missing:
            return
        try:
            ended = subprocess.run(
                [machine.python, program, folders],
                env=machine.environment,
                capture_output=True,
                text=True,
                timeout=timeout_sec,
                check=False,
            )
        except subprocess.TimeoutExpired:
            left = sorted(folder.name for folder in folders.iterdir() if not (folder / result).exists())
            hangs.append(left[0] if left else missing[-1])
            assert hangs.count(hangs[-1]) < 3, f"QEMU hung three times, {timeout_sec:.0f} s each, at {hangs}"
            continue
        assert ended.returncode == 0, f"at {missing[0]} or later: {ended.stderr[-4000:]}"
        left = sorted(folder.name for folder in folders.iterdir() if not (folder / result).exists())
        assert not left, f"the program left out {left}"
