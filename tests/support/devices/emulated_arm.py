"""The emulated Arm machines of the benchmarks, for tests, which are skipped where they cannot be made."""

from __future__ import annotations

import sys

import pytest
from benchmarks.arm.machine import (
    CORTEX_A72,
    MAX,
    NEOVERSE_N1,
    ArmCpu,
    ArmMachine,
    CannotBeMade,
    make_machine,
)

__all__ = ["ARM_COMPILER", "CORTEX_A72", "MAX", "NEOVERSE_N1", "ArmCpu", "ArmMachine", "emulated_machine"]

ARM_COMPILER = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu")
"""A C compiler for such machines: Clang, with the C library that it links with."""


def emulated_machine(cpu: ArmCpu) -> ArmMachine:
    """Return a machine with such a CPU, made at the first call of all test runs; skip the test if it cannot be made here."""
    try:
        return make_machine(cpu)
    except CannotBeMade as error:
        pytest.skip(f"no emulated Arm machine: {error}")
