"""The page of networks on emulated Arm machines, and what its numbers mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.arm.corpus import FLOATS, MACHINES, QUANTISED, apart, page, run_patiently
from benchmarks.arm.machine import CORTEX_A72, ArmMachine, HungError
from benchmarks.corpus.listing import read_corpus


def kernel(name: str, *instructions: str) -> dict[str, Any]:
    return {"name": name, "instructions": list(instructions)}


def right(name: str, machine: str, *products: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "machine": machine, "status": "right", "apart": 2e-6, "products": products}


def test_a_row_counts_kernels_with_the_instruction() -> None:
    kernels = (
        kernel("fused_byte_conv2d_add", "smmla"),
        kernel("fused_byte_conv2d1_add", "sdot", "smmla"),
        kernel("byte_matmul"),
        kernel("depthwise_conv2d_of_bytes"),
        kernel("fused_conv2d_add"),
    )
    wrong = {"name": "b", "machine": "i8mm", "status": "wrong", "message": "output 'y' is off"}
    text = page({"a on i8mm": right("a", "i8mm", *kernels), "b on i8mm": wrong})
    assert "## i8mm: 1 of 2 right" in text
    assert "| a | right | 2.0e-06 | sdot, smmla | 2 of 2 | 0 of 1 | 0 of 1 | 1 |" in text
    assert "| b | wrong: output 'y' is off |" in text
    assert "neoverse" not in text


def test_what_was_built_alone_counts_apart() -> None:
    built = {"name": "b", "machine": "i8mm", "status": "built", "products": [kernel("byte_matmul", "sdot")]}
    text = page({"a on i8mm": right("a", "i8mm"), "b on i8mm": built})
    assert "## i8mm: 1 of 1 right, 1 built" in text
    assert "| b | built | - | sdot | - | 1 of 1 | - | - |" in text


def test_a_cpu_without_the_instructions_has_no_columns_of_them() -> None:
    text = page({"a on cortex-a72": right("a", "cortex-a72", kernel("conv2d"))})
    assert "| network | result | apart from x86-64 |\n|---|---|---|\n| a | right | 2.0e-06 |" in text


def test_outputs_are_apart_by_a_share_of_their_size() -> None:
    expected = np.array([3.0, -3.0, 3.0, 3.0], np.float32)
    assert apart(expected, expected) == 0.0
    assert abs(apart(expected + np.array([0, 0, 0.3, 0], np.float32), expected) - 0.1) < 1e-6
    assert apart(np.ones(2, np.int64), np.zeros(2, np.int64)) == 1.0
    assert apart(np.empty(0), np.empty(0)) == 0.0


def test_no_number_on_both_machines_is_no_difference() -> None:
    expected = np.array([np.nan, 2.0, 2.0], np.float32)
    assert apart(expected, expected) == 0.0
    assert abs(apart(np.array([np.nan, 2.0, 3.0], np.float32), expected) - 0.5) < 1e-6
    assert apart(expected[:1], expected[:1]) == 0.0
    assert np.isnan(apart(np.array([1.0, 2.0, 2.0], np.float32), expected))


@dataclass(frozen=True)
class HangingMachine(ArmMachine):
    """A machine whose Python hangs some times before it runs; it writes each try to a file in its folder."""

    hangs: int

    @property
    def tries(self) -> int:
        return len(list(self.folder.iterdir()))

    def run(self, *arguments: object, cwd: Path | None = None, timeout_sec: float = 600.0) -> str:
        (self.folder / str(self.tries)).touch()
        if self.tries <= self.hangs:
            raise HungError("python", timeout_sec, 0.0)
        return ""


def test_a_program_that_hangs_in_the_emulator_is_tried_again(tmp_path: Path) -> None:
    machine = HangingMachine(tmp_path, CORTEX_A72, hangs=2)
    run_patiently(machine, "run.py")
    assert machine.tries == 3


def test_a_program_that_hangs_three_times_is_given_up(tmp_path: Path) -> None:
    machine = HangingMachine(tmp_path, CORTEX_A72, hangs=3)
    with pytest.raises(HungError):
        run_patiently(machine, "run.py")
    assert machine.tries == 3


def test_its_networks_are_in_the_corpus() -> None:
    names = {network.name for network in read_corpus()}
    assert {*FLOATS, *QUANTISED} <= names
    assert len({*FLOATS, *QUANTISED}) >= 20
    assert set(MACHINES) == {"cortex-a72", "cortex-a76", "neoverse-n1", "i8mm"}
